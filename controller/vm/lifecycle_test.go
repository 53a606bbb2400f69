package vm

import (
	"errors"
	"strings"
	"testing"
	"time"

	"gotest.tools/v3/assert"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	kubevirt "kubevirt.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"

	"github.com/nodevirt/nodevirt/controller/backoff"
	"github.com/nodevirt/nodevirt/test/fakecluster"
)

const (
	creates      = "patch VirtualMachine, create ControllerRevision, create VirtualMachineInstance"
	makes        = creates + ", patch status of VirtualMachine"
	writesStatus = "patch status of VirtualMachine"
)

// TestStart: a VM gets its finalizer, one instance and, after the instance's event, a status, in this order, and
// while nothing changes nothing is written.
func TestStart(t *testing.T) {
	g := newRig(t)
	g.add(always, withUUID)
	g.reconcile()
	g.expect(creates)
	if vmi := g.vmi(); !metav1.IsControlledBy(vmi, g.vm()) || vmi.Annotations[kubevirt.VirtualMachineGenerationAnnotation] != "3" {
		t.Errorf("instance: %+v", vmi.ObjectMeta)
	}
	g.reconcile()
	g.expect(writesStatus)
	g.printable(kubevirt.VirtualMachineStatusStarting)
	if e := g.Events(); !strings.HasPrefix(e, "Normal SuccessfulCreate") {
		t.Errorf("events: %s", e)
	}
	g.reconcile()
	g.expect("")
	g.phase(kubevirt.Running, func(vmi *kubevirt.VirtualMachineInstance) {
		vmi.Status.Conditions = []kubevirt.VirtualMachineInstanceCondition{{
			Type: kubevirt.VirtualMachineInstanceReady, Status: corev1.ConditionTrue,
		}}
	})
	g.reconcile()
	g.expect(writesStatus)
	g.printable(kubevirt.VirtualMachineStatusRunning)
	if s := g.vm().Status; !s.Created || !s.Ready || s.ObservedGeneration != 3 || s.RunStrategy != always {
		t.Errorf("status: %+v", s)
	}
	g.reconcile()
	g.expect("")
}

// TestStartInCrowd: a new VM whose instance runs before the instance's event has its turn takes one status.
func TestStartInCrowd(t *testing.T) {
	g := newRig(t)
	g.add(always, withUUID)
	g.reconcile()
	g.phase(kubevirt.Running)
	g.reconcile()
	g.expect(makes)
	g.printable(kubevirt.VirtualMachineStatusRunning)
}

// TestStartOnRequest: the status records at once that a start was carried out where the strategy alone does not
// say that there is an instance: nothing would keep the VM from a second start.
func TestStartOnRequest(t *testing.T) {
	for _, strategy := range []kubevirt.VirtualMachineRunStrategy{
		kubevirt.RunStrategyOnce, kubevirt.RunStrategyRerunOnFailure, kubevirt.RunStrategyManual,
	} {
		g := newRig(t)
		g.add(strategy, withUUID)
		if strategy == kubevirt.RunStrategyManual {
			g.request(kubevirt.VirtualMachineStateChangeRequest{Action: kubevirt.StartRequest})
		}
		g.reconcile()
		if s := g.vm().Status; s.RunStrategy != strategy || len(s.StateChangeRequests) > 0 || !s.Created {
			t.Errorf("%s: status %+v", strategy, s)
		}
	}
}

// TestRestartRequired: a template that changes under a running instance is noted,
// and the instance is left alone.
func TestRestartRequired(t *testing.T) {
	g := newRig(t)
	g.add(always)
	g.reconcile()
	g.phase(kubevirt.Running)
	fakecluster.Change(t, g.Cluster, g.vm(), func(vm *kubevirt.VirtualMachine) { vm.Spec.Template.Spec.Hostname = "other" })
	g.Writes()
	g.reconcile()
	g.expect(writesStatus)
	found := false
	for _, c := range g.vm().Status.Conditions {
		found = found || c.Type == kubevirt.VirtualMachineRestartRequired && c.Status == corev1.ConditionTrue
	}
	if !found {
		t.Errorf("conditions: %+v", g.vm().Status.Conditions)
	}
}

// TestRestart: a requested stop deletes that very instance, and the start that was
// requested with it makes another one once the first is gone.
func TestRestart(t *testing.T) {
	g := newRig(t)
	g.add(manual)
	g.reconcile()
	g.printable(kubevirt.VirtualMachineStatusStopped)
	g.request(startIt)
	g.reconcile()
	first := g.vmi()
	if first == nil {
		t.Fatal("not started")
	}
	g.phase(kubevirt.Running)
	g.reconcile()
	if left := g.vm().Status.StateChangeRequests; len(left) > 0 {
		t.Errorf("requests that are done: %+v", left)
	}
	g.request(request{Action: kubevirt.StopRequest, UID: &first.UID}, startIt)
	g.Writes()
	g.Events()
	g.reconcile()
	g.expect("patch status of VirtualMachine, delete VirtualMachineInstance")
	if e := g.Events(); !strings.HasPrefix(e, "Normal SuccessfulDelete") {
		t.Errorf("events: %s", e)
	}
	g.reconcile()
	g.printable(kubevirt.VirtualMachineStatusStopping)
	if len(g.vm().Status.StateChangeRequests) != 2 {
		t.Errorf("requests: %+v", g.vm().Status.StateChangeRequests)
	}
	g.ended()
	g.reconcile()
	if second := g.vmi(); second == nil || second.UID == first.UID {
		t.Fatalf("not started again: %v", second)
	}
	g.phase(kubevirt.Scheduling)
	g.reconcile()
	if left := g.vm().Status.StateChangeRequests; len(left) > 0 {
		t.Errorf("requests that are done: %+v", left)
	}
	g.Writes()
	g.reconcile()
	g.expect("") // the stop was not meant for this one
}

// TestHalted: a halted VM's instance goes, and none follows.
func TestHalted(t *testing.T) {
	g := newRig(t)
	g.add(always)
	g.reconcile()
	g.phase(kubevirt.Running)
	fakecluster.Change(t, g.Cluster, g.vm(), func(vm *kubevirt.VirtualMachine) { vm.Spec.RunStrategy = new(halted) })
	g.reconcile()
	g.ended()
	g.reconcile()
	g.printable(kubevirt.VirtualMachineStatusStopped)
	if g.vmi() != nil {
		t.Error("started in spite of Halted")
	}
}

// TestPoweredOff: a guest that powers off where that ends the VM is no failure, and clears those before.
func TestPoweredOff(t *testing.T) {
	for _, strategy := range []kubevirt.VirtualMachineRunStrategy{kubevirt.RunStrategyRerunOnFailure, kubevirt.RunStrategyOnce} {
		g := newRig(t)
		g.add(strategy)
		g.reconcile()
		fakecluster.Change(t, g.Cluster, g.vm(), func(vm *kubevirt.VirtualMachine) {
			vm.Status.StartFailure = &kubevirt.VirtualMachineStartFailure{ConsecutiveFailCount: 2, LastFailedVMIUID: "earlier"}
		})
		g.phase(kubevirt.Succeeded)
		g.reconcile()
		if strategy == kubevirt.RunStrategyRerunOnFailure {
			g.ended()
			g.reconcile()
		}
		if f, c := g.vm().Status.StartFailure, g.failure(); f != nil || c != nil {
			t.Errorf("%s: start failure %+v, condition %+v", strategy, f, c)
		}
		g.printable(kubevirt.VirtualMachineStatusStopped)
		if e := g.Events(); strings.Contains(e, "BackOff") {
			t.Errorf("%s: events: %s", strategy, e)
		}
	}
}

// TestNotCreated: the status says that the instance cannot be created, as by a quota.
func TestNotCreated(t *testing.T) {
	g := newRig(t)
	g.add(always)
	g.Fail = func(verb string, o client.Object) error {
		if _, is := o.(*kubevirt.VirtualMachineInstance); is && verb == "create" {
			return errors.New("exceeded quota")
		}
		return nil
	}
	if _, err := g.try(); err == nil {
		t.Error("created in spite of the quota")
	}
	g.printable("FailedCreate")
}

// TestCrashLoop: a failed start is on record, its instance stays for its log until the next start, and that waits.
func TestCrashLoop(t *testing.T) {
	g := newRig(t)
	g.add(always)
	g.reconcile()
	first := g.vmi()
	g.phase(kubevirt.Failed, func(vmi *kubevirt.VirtualMachineInstance) {
		vmi.Status.Conditions = []kubevirt.VirtualMachineInstanceCondition{{
			Type: kubevirt.VirtualMachineInstanceReady, Status: corev1.ConditionFalse, Message: "exit code 1",
		}}
	})
	g.Writes()
	g.Events()
	g.Fail = func(verb string, _ client.Object) error {
		if strings.HasPrefix(verb, "patch status") {
			return errors.New("the API server is away")
		}
		return nil
	}
	if _, err := g.try(); err == nil || g.vmi().DeletionTimestamp != nil {
		t.Errorf("deleted without a record; error %v", err)
	}
	g.Fail = nil
	if wait := g.reconcile().RequeueAfter; wait != backoff.Unit {
		t.Errorf("the next start is in %s", wait)
	}
	g.expect("patch status of VirtualMachine")
	if f := g.vm().Status.StartFailure; f == nil || f.ConsecutiveFailCount != 1 || f.LastFailedVMIUID != first.UID {
		t.Errorf("record: %+v", f)
	}
	if c := g.failure(); c == nil || c.Reason != reasonBackOff || !strings.Contains(c.Message, "exit code 1") {
		t.Errorf("condition: %+v", c)
	}
	if e := g.Events(); strings.Count(e, "Warning BackOff") != 1 {
		t.Errorf("events: %s", e)
	}
	g.printable(kubevirt.VirtualMachineStatusCrashLoopBackOff)
	g.now = g.now.Add(backoff.Unit / 2)
	if wait := g.reconcile().RequeueAfter; wait != backoff.Unit/2 {
		t.Errorf("the next start is in %s", wait)
	}
	if vmi := g.vmi(); vmi == nil || vmi.UID != first.UID || vmi.DeletionTimestamp != nil {
		t.Fatalf("the ended instance is gone: %+v", vmi)
	}
	g.printable(kubevirt.VirtualMachineStatusCrashLoopBackOff)
	if e := g.Events(); e != "" {
		t.Errorf("events: %s", e)
	}
	g.now = g.now.Add(backoff.Unit / 2)
	g.reconcile()
	g.printable(kubevirt.VirtualMachineStatusCrashLoopBackOff)
	g.ended()
	g.reconcile()
	if g.vmi() == nil {
		t.Fatal("not started")
	}
	g.phase(kubevirt.Running)
	g.now = g.now.Add(backoff.Steady / 2)
	if wait := g.reconcile().RequeueAfter; wait != backoff.Steady/2 {
		t.Errorf("looks again in %s", wait)
	}
	g.now = g.now.Add(backoff.Steady)
	g.reconcile()
	if f := g.vm().Status.StartFailure; f != nil {
		t.Errorf("counted after a run: %+v", f)
	}
}

// TestRerunOnFailure: the record says that a start must follow, since the strategy
// alone does not.
func TestRerunOnFailure(t *testing.T) {
	g := newRig(t)
	g.add(rerun)
	g.reconcile()
	g.phase(kubevirt.Running)
	g.reconcile()
	g.now = g.now.Add(2 * backoff.Steady)
	g.phase(kubevirt.Failed)
	g.reconcile()
	if requests := g.vm().Status.StateChangeRequests; len(requests) != 1 || requests[0].Action != kubevirt.StartRequest {
		t.Errorf("requests: %+v", requests)
	}
	g.ended()
	g.reconcile()
	if g.vmi() == nil {
		t.Error("not started again")
	}
}

// TestForeignInstance: an instance of another owner is neither adopted nor deleted,
// and one without an owner is adopted.
func TestForeignInstance(t *testing.T) {
	g := newRig(t)
	g.add(always)
	other := &kubevirt.VirtualMachineInstance{ObjectMeta: metav1.ObjectMeta{
		Namespace: web.Namespace, Name: web.Name, Finalizers: []string{"x/y"},
		OwnerReferences: []metav1.OwnerReference{{APIVersion: "v1", Kind: "Set", Name: "s", UID: "z", Controller: new(true)}},
	}}
	g.Add(t, other)
	g.reconcile()
	g.expect(writesStatus)
	if c := g.failure(); c == nil || c.Message != "VMI web belongs to Set s" {
		t.Errorf("condition: %+v", c)
	}
	if e := g.Events(); !strings.Contains(e, "Warning FailedCreate") {
		t.Errorf("events: %s", e)
	}
	fakecluster.Change(t, g.Cluster, other, func(vmi *kubevirt.VirtualMachineInstance) { vmi.OwnerReferences = nil })
	g.reconcile()
	if !metav1.IsControlledBy(g.vmi(), g.vm()) {
		t.Errorf("not adopted: %+v", g.vmi().OwnerReferences)
	}
	fakecluster.Change(t, g.Cluster, other, func(vmi *kubevirt.VirtualMachineInstance) { vmi.OwnerReferences = nil })
	if err := g.Delete(t.Context(), other); err != nil {
		t.Fatal(err)
	}
	g.reconcile()
	if c := g.failure(); c == nil || !strings.Contains(c.Message, "is being deleted") {
		t.Errorf("condition: %+v", c)
	}
}

// TestRemove: a deleted VM goes after its instance.
func TestRemove(t *testing.T) {
	g := newRig(t)
	g.add(always)
	g.reconcile()
	if err := g.Delete(t.Context(), g.vm()); err != nil {
		t.Fatal(err)
	}
	g.Writes()
	g.reconcile()
	g.expect("delete VirtualMachineInstance, patch status of VirtualMachine")
	g.printable(kubevirt.VirtualMachineStatusTerminating)
	g.reconcile()
	if g.vm() == nil {
		t.Fatal("gone before its instance")
	}
	g.ended()
	g.reconcile()
	if g.vm() != nil {
		t.Error("still there")
	}
	g.reconcile() // and nothing is left to do
}

// TestRemoveBehind: a deleted VM stays while the cache does not have its instance
// yet, and while the API server cannot say.
func TestRemoveBehind(t *testing.T) {
	g := newRig(t)
	g.add(always)
	g.reconcile()
	if err := g.Delete(t.Context(), g.vm()); err != nil {
		t.Fatal(err)
	}
	g.Hidden = func(o client.Object) bool { _, is := o.(*kubevirt.VirtualMachineInstance); return is }
	if _, err := g.try(); err == nil || !strings.Contains(err.Error(), "not in the cache yet") || g.vm() == nil {
		t.Errorf("error: %v", err)
	}
}

// TestOrphan: a VM that is deleted with --cascade=orphan leaves its instance, and so
// does one whose instance belongs to another.
func TestOrphan(t *testing.T) {
	for name, prepare := range map[string]func(*rig){
		"cascade": func(g *rig) {
			fakecluster.Change(g.t, g.Cluster, g.vm(), func(vm *kubevirt.VirtualMachine) {
				controllerutil.AddFinalizer(vm, metav1.FinalizerOrphanDependents)
			})
		},
		"foreign": func(g *rig) {
			fakecluster.Change(g.t, g.Cluster, g.vmi(), func(vmi *kubevirt.VirtualMachineInstance) { vmi.OwnerReferences = nil })
		},
	} {
		t.Run(name, func(t *testing.T) {
			g := newRig(t)
			g.add(always)
			g.reconcile()
			prepare(g)
			if err := g.Delete(t.Context(), g.vm()); err != nil {
				t.Fatal(err)
			}
			g.reconcile()
			if vmi := g.vmi(); vmi == nil || vmi.DeletionTimestamp != nil {
				t.Error("the instance was deleted")
			}
			if vm := g.vm(); vm != nil && controllerutil.ContainsFinalizer(vm, kubevirt.VirtualMachineControllerFinalizer) {
				t.Error("the VM waits for an instance that is not its own")
			}
		})
	}
}

// TestOrphanBehindTheCache: the instance that Kubernetes has released stays, if the cache still has it as the VM's.
func TestOrphanBehindTheCache(t *testing.T) {
	g := newRig(t)
	g.add(always)
	g.reconcile()
	before := g.vmi()
	fakecluster.Change(t, g.Cluster, g.vmi(), func(vmi *kubevirt.VirtualMachineInstance) { vmi.OwnerReferences = nil })
	if err := g.Delete(t.Context(), g.vm()); err != nil {
		t.Fatal(err)
	}
	g.Behind = func(o client.Object) {
		if vmi, is := o.(*kubevirt.VirtualMachineInstance); is {
			before.DeepCopyInto(vmi)
		}
	}
	_, err := g.try()
	assert.ErrorContains(t, err, "delete VMI")
	g.Behind = nil
	g.reconcile()
	if vmi := g.vmi(); vmi == nil || vmi.DeletionTimestamp != nil {
		t.Error("the instance was deleted")
	}
}

// TestNoAdoptionByADeletedVM: a VM that the cache has as it was does not adopt the instance that it has released.
func TestNoAdoptionByADeletedVM(t *testing.T) {
	g := newRig(t)
	g.add(always)
	g.reconcile()
	fakecluster.Change(t, g.Cluster, g.vmi(), func(vmi *kubevirt.VirtualMachineInstance) { vmi.OwnerReferences = nil })
	before := g.vm()
	if err := g.Delete(t.Context(), g.vm()); err != nil {
		t.Fatal(err)
	}
	g.Behind = func(o client.Object) {
		if vm, is := o.(*kubevirt.VirtualMachine); is {
			before.DeepCopyInto(vm)
		}
	}
	_, _ = g.try() // its status can't be written
	if vmi := g.vmi(); len(vmi.OwnerReferences) > 0 {
		t.Errorf("adopted: %v", vmi.OwnerReferences)
	}
}

// TestContradiction: a VM with both fields is reported, and nothing is started.
func TestContradiction(t *testing.T) {
	g := newRig(t)
	g.add(always, func(vm *kubevirt.VirtualMachine) { vm.Spec.Running = new(true) })
	g.reconcile()
	if c := g.failure(); c == nil || g.vmi() != nil {
		t.Errorf("condition %+v", c)
	}
}

// TestCreateFails: an instance that cannot be created is reported, and tried again.
func TestCreateFails(t *testing.T) {
	g := newRig(t)
	g.add(always)
	g.Fail = func(verb string, _ client.Object) error {
		if verb == "create" {
			return errors.New("exceeded quota")
		}
		return nil
	}
	if _, err := g.try(); err == nil {
		t.Error("no error: it would not be tried again")
	}
	if c := g.failure(); c == nil || c.Reason != "FailedCreate" || !strings.Contains(c.Message, "exceeded quota") {
		t.Errorf("condition: %+v", c)
	}
	since := g.failure().LastTransitionTime
	g.now = g.now.Add(time.Hour)
	_, _ = g.try()
	if now := g.failure().LastTransitionTime; !now.Equal(&since) {
		t.Errorf("fails since %s, not %s", now, since)
	}
	g.Fail = nil
	g.reconcile()
	if g.failure() != nil || g.vmi() == nil {
		t.Errorf("after it could be created: %+v", g.failure())
	}
}

// TestNoTemplate: a VM that no admission saw is reported.
func TestNoTemplate(t *testing.T) {
	g := newRig(t)
	g.add(always, func(vm *kubevirt.VirtualMachine) { vm.Spec.Template = nil })
	if _, err := g.try(); err == nil || g.vmi() != nil {
		t.Errorf("error: %v", err)
	}
	if c := g.failure(); c == nil || !strings.Contains(c.Message, "spec.template") {
		t.Errorf("condition: %+v", c)
	}
}

// TestRestoreInProgress: a VM does not start on disks that are being restored, and gets no blank one under the name of one.
func TestRestoreInProgress(t *testing.T) {
	g := newRig(t)
	g.r.dataVolumes = fakeDataVolumes(nil)
	g.add(always, ofTemplate(t, `{`+storage+`, "source": {"blank": {}}}`))
	disk := &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Namespace: web.Namespace, Name: "data"}}
	restore := "back"
	fakecluster.Change(t, g.Cluster, g.vm(), func(vm *kubevirt.VirtualMachine) { vm.Status.RestoreInProgress = &restore })
	g.reconcile()
	if vmi := g.vmi(); vmi != nil {
		t.Errorf("it has started: %+v", vmi.ObjectMeta)
	}
	if g.Exists(t, disk) {
		t.Error("it has a blank disk")
	}
	fakecluster.Change(t, g.Cluster, g.vm(), func(vm *kubevirt.VirtualMachine) { vm.Status.RestoreInProgress = nil })
	g.reconcile()
	if !g.Exists(t, disk) {
		t.Error("it has no disk afterwards")
	}
	if g.vmi() == nil {
		t.Error("it does not start afterwards")
	}
}
