package vmi

import (
	"errors"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	kubevirt "kubevirt.io/api/core/v1"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"

	"github.com/nodevirt/nodevirt/controller/pod"
	"github.com/nodevirt/nodevirt/shim/podstatus/condition"
	"github.com/nodevirt/nodevirt/test/fakecluster"
)

// TestStart follows an instance from its creation to a running guest, and counts
// what that costs in requests.
func TestStart(t *testing.T) {
	g := newRig(t)
	g.add()
	g.reconcile()
	g.expect("patch VirtualMachineInstance, create Pod")
	p := g.onePod()
	if p.Name != pod.Name(g.vmi()) || !controllerutil.ContainsFinalizer(p, pod.Finalizer) || !metav1.IsControlledBy(p, g.vmi()) {
		t.Errorf("pod: %+v", p.ObjectMeta)
	}
	if !controllerutil.ContainsFinalizer(g.vmi(), kubevirt.VirtualMachineInstanceFinalizer) {
		t.Error("the instance could vanish before its pod")
	}
	if e := g.Events(); !strings.HasPrefix(e, "Normal SuccessfulCreate") {
		t.Errorf("events: %s", e)
	}

	// The scheduler has said nothing yet: that is worth no write.
	fakecluster.Change(t, g.Cluster, p, func(p *corev1.Pod) { p.CreationTimestamp = metav1.NewTime(g.now.Add(-time.Second)) })
	if wait := g.reconcile().RequeueAfter; wait != schedulerTime-time.Second {
		t.Errorf("waits %s for the scheduler", wait)
	}
	g.expect("")
	g.now = g.now.Add(schedulerTime)
	g.reconcile()
	if phase := g.vmi().Status.Phase; phase != kubevirt.Scheduling {
		t.Errorf("phase %s", phase)
	}

	g.bind(p, "node1")
	g.reconcile()
	if vmi := g.vmi(); vmi.Status.Phase != kubevirt.Scheduled || vmi.Labels[kubevirt.NodeNameLabel] != "node1" {
		t.Errorf("bound: %s, labels %v", vmi.Status.Phase, vmi.Labels)
	}
	g.Writes()
	g.Events()
	g.state(p, running)
	g.reconcile()
	g.expect("patch status of VirtualMachineInstance")
	if s := g.vmi().Status; s.Phase != kubevirt.Running || s.NodeName != "node1" || s.ActivePods[p.UID] != "node1" {
		t.Errorf("running: %+v", s)
	}
	if e := g.Events(); e != "Normal Created VirtualMachineInstance defined.\nNormal Started VirtualMachineInstance started." {
		t.Errorf("events: %s", e)
	}
	g.reconcile()
	g.expect("") // while a guest runs nothing is written
}

// TestEnd: the pod may go only after the end is in the instance's status.
func TestEnd(t *testing.T) {
	g := newRig(t)
	p := g.started()
	g.state(p, completed)
	g.Fail = func(verb string, _ client.Object) error {
		if strings.HasPrefix(verb, "patch status") {
			return errors.New("the API server is away")
		}
		return nil
	}
	if _, err := g.r.Reconcile(t.Context(), ctrl.Request{NamespacedName: web}); err == nil {
		t.Error("no error though the status could not be written")
	}
	g.expect("")
	g.Fail = nil
	g.reconcile()
	g.expect("patch status of VirtualMachineInstance, patch Pod")
	if phase := g.vmi().Status.Phase; phase != kubevirt.Succeeded {
		t.Errorf("phase %s", phase)
	}
	if p := g.onePod(); len(p.Finalizers) > 0 {
		t.Errorf("finalizers of the ended pod: %v", p.Finalizers)
	}
	if e := g.Events(); e != "Normal Stopped The VirtualMachineInstance was shut down." {
		t.Errorf("events: %s", e)
	}
	if err := g.Delete(t.Context(), p); err != nil {
		t.Fatal(err)
	}
	g.reconcile()
	g.expect("") // an ended instance gets no other pod
}

// TestDelete: a deleted instance stays until its pod has gone, and its pod until
// its guest has ended.
func TestDelete(t *testing.T) {
	g := newRig(t)
	p := g.started()
	if err := g.Delete(t.Context(), g.vmi()); err != nil {
		t.Fatal(err)
	}
	g.reconcile()
	g.expect("delete Pod")
	if e := g.Events(); !strings.HasPrefix(e, "Normal SuccessfulDelete") {
		t.Errorf("events: %s", e)
	}
	g.reconcile()
	if !g.Exists(t, p) || g.vmi() == nil {
		t.Fatal("gone while the guest runs")
	}
	g.state(p, completed)
	g.reconcile() // the pod had the finalizer alone
	if g.Exists(t, p) || g.vmi() == nil {
		t.Error("the pod must go first, then the instance")
	}
	g.reconcile()
	if g.vmi() != nil {
		t.Error("the instance is still there")
	}
	g.reconcile() // and nothing is left to do
}

// TestForceDeletedOfLostNode: nothing is released while a node is not heard, and
// everything once it is gone, without a kubelet.
func TestForceDeletedOfLostNode(t *testing.T) {
	for name, vouch := range map[string]func(*rig){
		"gone": func(g *rig) { g.deleteNode("node1") },
		"gone, and its lease stays": func(g *rig) {
			g.renew("node1")
			g.deleteNode("node1")
			if again := g.reconcile().RequeueAfter; again == 0 || again > beat {
				g.t.Errorf("looks again after %s", again)
			}
			g.now = g.now.Add(beat)
		},
		"out of service": func(g *rig) {
			n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "node1"}}
			fakecluster.Change(g.t, g.Cluster, n, func(n *corev1.Node) {
				n.Spec.Taints = []corev1.Taint{{Key: corev1.TaintNodeOutOfService, Effect: corev1.TaintEffectNoExecute}}
			})
		},
	} {
		t.Run(name, func(t *testing.T) {
			g := newRig(t)
			p := g.started()
			g.ready("node1", corev1.ConditionUnknown)
			if err := g.Delete(t.Context(), p, client.GracePeriodSeconds(0)); err != nil {
				t.Fatal(err)
			}
			g.reconcile()
			if phase := g.vmi().Status.Phase; phase != kubevirt.Unknown || !g.Exists(t, p) {
				t.Fatalf("phase %s; the pod must stay", phase)
			}
			if e := g.Events(); !strings.Contains(e, "Warning NodeUnresponsive") {
				t.Errorf("events: %s", e)
			}
			vouch(g)
			g.reconcile()
			if phase := g.vmi().Status.Phase; phase != kubevirt.Failed || g.Exists(t, p) {
				t.Errorf("phase %s; the pod must go", phase)
			}
		})
	}
}

// TestTellsTheDescheduler: a pod says that its eviction only begins a move, and that one is under way.
func TestTellsTheDescheduler(t *testing.T) {
	g := newRig(t)
	p := g.started()
	if _, says := p.Annotations[pod.AnnotationEvictOnly]; !says {
		t.Errorf("annotations %v", p.Annotations)
	}
	for _, node := range []string{p.Spec.NodeName, "", "another"} {
		fakecluster.Change(t, g.Cluster, g.vmi(), func(vmi *kubevirt.VirtualMachineInstance) { vmi.Status.EvacuationNodeName = node })
		g.reconcile()
		_, moves := g.onePod().Annotations[pod.AnnotationEvictionInProgress]
		if moves != (node == p.Spec.NodeName) {
			t.Errorf("leaving node %q: annotated: %t", node, moves)
		}
	}
}

// TestNeverTwo: a new instance gets no pod while the guest of an earlier one of its
// name may run.
func TestNeverTwo(t *testing.T) {
	g := newRig(t)
	p := g.started()
	// A user removes the instance by force.
	fakecluster.Change(t, g.Cluster, g.vmi(), func(vmi *kubevirt.VirtualMachineInstance) { vmi.Finalizers = nil })
	if err := g.Delete(t.Context(), g.vmi()); err != nil {
		t.Fatal(err)
	}
	g.reconcile()
	g.expect("delete Pod")
	g.add()
	g.reconcile()
	if c := g.condition(kubevirt.VirtualMachineInstanceSynchronized); c == nil || c.Reason != "PreviousInstanceRunning" {
		t.Errorf("condition: %+v", c)
	}
	g.ready("node1", corev1.ConditionUnknown)
	g.reconcile()
	if len(g.pods()) != 1 {
		t.Fatal("a second pod while the node is lost")
	}
	g.ready("node1", corev1.ConditionTrue)
	g.state(p, crashed)
	g.reconcile()
	if g.Exists(t, p) {
		t.Error("the earlier pod is still there")
	}
	if second := g.onePod(); second.Name == p.Name {
		t.Errorf("the same pod %s", p.Name)
	}
}

// TestCachesApart: a pod in one cache whose instance is not yet in the other one is
// no orphan.
func TestCachesApart(t *testing.T) {
	g := newRig(t)
	p := g.started()
	g.Hidden = func(o client.Object) bool { _, is := o.(*kubevirt.VirtualMachineInstance); return is }
	g.reconcile()
	g.expect("")
	if g.onePod().DeletionTimestamp != nil {
		t.Errorf("pod %s is deleted", p.Name)
	}
}

// TestLost: a pod that vanished in spite of its finalizer ends its instance; one
// that only lost its label is found again.
func TestLost(t *testing.T) {
	g := newRig(t)
	p := g.started()
	g.Hidden = func(o client.Object) bool {
		p, is := o.(*corev1.Pod)
		return is && p.Labels[kubevirt.AppLabel] != pod.LabelValue
	}
	fakecluster.Change(t, g.Cluster, p, func(p *corev1.Pod) { p.Labels = nil })
	g.reconcile()
	g.expect("patch Pod")
	if p := g.onePod(); p.Labels[kubevirt.AppLabel] != pod.LabelValue {
		t.Errorf("labels: %v", p.Labels)
	}
	g.reconcile()
	if phase := g.vmi().Status.Phase; phase != kubevirt.Running {
		t.Errorf("phase %s", phase)
	}
	fakecluster.Change(t, g.Cluster, p, func(p *corev1.Pod) { p.Finalizers = nil })
	if err := g.Delete(t.Context(), p); err != nil {
		t.Fatal(err)
	}
	g.reconcile()
	if s := g.vmi().Status; s.Phase != kubevirt.Failed || s.Reason != "PodLost" {
		t.Errorf("phase %s, reason %s", s.Phase, s.Reason)
	}
	g.reconcile()
	if len(g.pods()) != 0 {
		t.Error("an ended instance got a pod")
	}
}

// TestHiddenPod: before its finalizer goes, a deleted instance's pod is looked for
// at the API server, not in the cache.
func TestHiddenPod(t *testing.T) {
	g := newRig(t)
	g.started()
	if err := g.Delete(t.Context(), g.vmi()); err != nil {
		t.Fatal(err)
	}
	g.Hidden = func(o client.Object) bool { _, is := o.(*corev1.Pod); return is }
	if wait := g.reconcile().RequeueAfter; wait != time.Second || g.vmi() == nil {
		t.Errorf("looks again in %s", wait)
	}
}

// TestCreateFails: a pod that cannot be created is reported and tried again; one
// that cannot be made waits for a change.
func TestCreateFails(t *testing.T) {
	g := newRig(t)
	g.add()
	g.Fail = func(verb string, o client.Object) error {
		if _, is := o.(*corev1.Pod); is && verb == "create" {
			return apierrors.NewForbidden(schema.GroupResource{Resource: "pods"}, o.GetName(), errors.New("exceeded quota"))
		}
		return nil
	}
	if _, err := g.r.Reconcile(t.Context(), ctrl.Request{NamespacedName: web}); err == nil {
		t.Error("no error: it would not be tried again")
	}
	c := g.condition(kubevirt.VirtualMachineInstanceSynchronized)
	if c == nil || c.Reason != "FailedCreate" || !strings.Contains(c.Message, "exceeded quota") {
		t.Errorf("condition: %+v", c)
	}
	if e := g.Events(); !strings.Contains(e, "Warning FailedCreate") {
		t.Errorf("events: %s", e)
	}

	g = newRig(t)
	g.add(func(vmi *kubevirt.VirtualMachineInstance) {
		vmi.Annotations = map[string]string{"nodevirt.io/bogus": ""}
	})
	g.reconcile()
	if c := g.condition(kubevirt.VirtualMachineInstanceSynchronized); c == nil || c.Reason != "FailedCreate" {
		t.Errorf("condition: %+v", c)
	}
}

// TestForeignPod: a pod of that name that is not the instance's is left alone.
func TestForeignPod(t *testing.T) {
	g := newRig(t)
	vmi := g.add()
	g.Add(t, &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: web.Namespace, Name: pod.Name(vmi)}})
	_, err := g.r.Reconcile(t.Context(), ctrl.Request{NamespacedName: web})
	if err == nil || !strings.Contains(err.Error(), "is not of VMI web") {
		t.Errorf("error: %v", err)
	}
	if p := g.onePod(); p.DeletionTimestamp != nil || len(p.Labels) > 0 {
		t.Errorf("changed: %+v", p.ObjectMeta)
	}
}

// TestSilentSandbox: why a pod has no sandbox is read from its events, ever more
// rarely.
func TestSilentSandbox(t *testing.T) {
	g := newRig(t)
	g.add()
	g.reconcile()
	p := g.onePod()
	g.bind(p, "node1")
	for _, e := range []struct {
		kind, reason, message string
		age                   time.Duration
	}{
		{corev1.EventTypeWarning, "FailedMount", "no such Secret", 2 * time.Second},
		{corev1.EventTypeWarning, "FailedMount", "an older one", 9 * time.Second},
		{corev1.EventTypeWarning, "Unrelated", "that is another matter", 0},
		{corev1.EventTypeNormal, "FailedMount", "that is no warning", 0},
	} {
		g.Add(t, &corev1.Event{
			ObjectMeta:     metav1.ObjectMeta{Namespace: web.Namespace, Name: strings.ReplaceAll(e.message, " ", "-")},
			InvolvedObject: corev1.ObjectReference{UID: p.UID}, Type: e.kind, Reason: e.reason, Message: e.message,
			LastTimestamp: metav1.NewTime(g.now.Add(-e.age)),
		})
	}
	if wait := g.reconcile().RequeueAfter; wait != silence {
		t.Errorf("asks in %s", wait)
	}
	g.now = g.now.Add(20 * time.Second)
	if wait := g.reconcile().RequeueAfter; wait != 10*time.Second {
		t.Errorf("asks again in %s", wait)
	}
	c := g.condition(kubevirt.VirtualMachineInstanceSynchronized)
	if c == nil || c.Reason != "FailedMount" || c.Message != "no such Secret" {
		t.Errorf("condition: %+v", c)
	}
}

// TestUnfinished: a node that still makes the disks is no error, though the kubelet calls it one.
func TestUnfinished(t *testing.T) {
	g := newRig(t)
	g.add()
	g.reconcile()
	p := g.onePod()
	g.bind(p, "node1")
	g.Events()
	for _, progress := range []string{"10 %", "20 %"} {
		fakecluster.Change(t, g.Cluster, p, func(p *corev1.Pod) {
			p.Status.ContainerStatuses = []corev1.ContainerStatus{{
				Name: pod.Container, State: corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: "CreateContainerError", Message: "unfinished"}},
			}}
			p.Status.Conditions = append(p.Status.Conditions[:1], corev1.PodCondition{
				Type: condition.VMReady, Status: corev1.ConditionFalse, Reason: condition.ReasonUnfinished, Message: progress,
			})
		})
		g.reconcile()
		if c := g.condition(kubevirt.VirtualMachineInstanceSynchronized); c == nil || c.Reason != condition.ReasonUnfinished || c.Message != progress {
			t.Errorf("condition: %+v", c)
		}
	}
	if got := g.Events(); strings.Contains(got, "Warning") || strings.Contains(got, "20 %") || !strings.Contains(got, "10 %") {
		t.Errorf("events: %s", got)
	}
}

// TestLivenessFailed: a guest that the kubelet stops, since its liveness probe failed, has not just powered off.
func TestLivenessFailed(t *testing.T) {
	for code, want := range map[int32]string{
		0:   "The VM's liveness probe failed, and the kubelet had the guest power off.",
		137: "The VM's liveness probe failed, and the guest did not shut down in its grace period: exit code 137",
	} {
		g := newRig(t)
		g.add(func(vmi *kubevirt.VirtualMachineInstance) { vmi.Spec.LivenessProbe = new(kubevirt.Probe) })
		g.reconcile()
		p := g.onePod()
		g.bind(p, "node1")
		g.state(p, running)
		g.reconcile()
		g.Events()
		g.Add(t, &corev1.Event{
			ObjectMeta: metav1.ObjectMeta{Namespace: web.Namespace, Name: "killing"}, InvolvedObject: corev1.ObjectReference{UID: p.UID},
			Type: corev1.EventTypeNormal, Reason: "Killing", Message: "Container compute failed liveness probe, will be restarted",
		})
		g.state(p, corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{ExitCode: code}})
		g.reconcile()
		if c := g.condition(kubevirt.VirtualMachineInstanceReady); c == nil || c.Message != want {
			t.Errorf("condition: %+v; want %s", c, want)
		}
		if got := g.Events(); !strings.Contains(got, "liveness probe failed") {
			t.Errorf("events: %s", got)
		}
	}
}

// TestPresetEvent: the user learns of presets that were not applied.
func TestPresetEvent(t *testing.T) {
	g := newRig(t)
	g.add(func(vmi *kubevirt.VirtualMachineInstance) {
		vmi.Annotations = map[string]string{pod.AnnotationOverridden: "small: spec.domain.cpu"}
	})
	g.reconcile()
	if e := g.Events(); !strings.Contains(e, "small: spec.domain.cpu") {
		t.Errorf("events: %s", e)
	}
}
