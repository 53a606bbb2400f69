package vm

import (
	"context"
	"encoding/json"
	"errors"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	kubevirt "kubevirt.io/api/core/v1"

	"github.com/nodevirt/nodevirt/controller/memory"
	"github.com/nodevirt/nodevirt/controller/pod"
	instances "github.com/nodevirt/nodevirt/controller/vmi"
	podcondition "github.com/nodevirt/nodevirt/shim/podstatus/condition"
	"github.com/nodevirt/nodevirt/shim/vm/hotplug/order"
	"github.com/nodevirt/nodevirt/test/fakecluster"
)

// suspendingNode answers as the node of a guest that is saved.
type suspendingNode struct {
	own     *corev1.Pod
	state   order.SaveState
	fail    error
	ordered order.Save
}

func (n *suspendingNode) PodOf(context.Context, *kubevirt.VirtualMachineInstance, string) (*corev1.Pod, error) {
	return n.own, nil
}

func (n *suspendingNode) Control(_ context.Context, _ *corev1.Pod, _ int, _ string, arguments ...string) ([]byte, error) {
	if n.fail != nil {
		return nil, n.fail
	}
	if err := json.Unmarshal([]byte(arguments[0]), &n.ordered); err != nil {
		return nil, err
	}
	return json.Marshal(order.Saved{Volume: n.ordered.Volume, State: n.state, Message: "no space left on device"})
}

// suspends returns a rig with a VM whose guest runs, and its node.
func newSuspendRig(t *testing.T, strategy kubevirt.VirtualMachineRunStrategy) (*rig, *suspendingNode) {
	t.Helper()
	g := newRig(t)
	n := &suspendingNode{state: order.SaveWriting, own: &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: web.Namespace, Name: "own", UID: "own"}}}
	n.own.Spec.NodeName = "node-1"
	saves := &memory.Saves{Live: g.Client, Uncached: g.Client, Pods: n, Nodes: n, Holder: pod.Holder{Image: "holder"}}
	g.r.suspends.saves = saves
	g.add(strategy, withUUID, func(vm *kubevirt.VirtualMachine) { vm.UID = "vm" })
	g.reconcile()
	if strategy == kubevirt.RunStrategyManual {
		g.request(kubevirt.VirtualMachineStateChangeRequest{Action: kubevirt.StartRequest})
		g.reconcile()
	}
	g.phase(kubevirt.Running)
	g.reconcile()
	return g, n
}

func (g *rig) annotate(key, value string) {
	g.t.Helper()
	fakecluster.Change(g.t, g.Cluster, g.vm(), func(vm *kubevirt.VirtualMachine) { metav1.SetMetaDataAnnotation(&vm.ObjectMeta, key, value) })
}

// mounted has the attachment pod's container run.
func (g *rig) mounted() *corev1.Pod {
	g.t.Helper()
	var all corev1.PodList
	if err := g.List(g.t.Context(), &all); err != nil || len(all.Items) != 1 {
		g.t.Fatalf("%d pods, %v", len(all.Items), err)
	}
	p := &all.Items[0]
	fakecluster.Change(g.t, g.Cluster, p, func(p *corev1.Pod) {
		p.Status.ContainerStatuses = []corev1.ContainerStatus{{
			ContainerID: "containerd://" + strings.Repeat("a", 64), State: corev1.ContainerState{Running: new(corev1.ContainerStateRunning)},
		}}
	})
	return p
}

func (g *rig) memoryPVCs() []corev1.PersistentVolumeClaim {
	g.t.Helper()
	var all corev1.PersistentVolumeClaimList
	if err := g.List(g.t.Context(), &all); err != nil {
		g.t.Fatal(err)
	}
	return all.Items
}

// TestSuspend: the memory goes to a PVC, the VM stays halted, and its next start goes on from there,
// once.
func TestSuspend(t *testing.T) {
	for _, strategy := range []kubevirt.VirtualMachineRunStrategy{always, kubevirt.RunStrategyManual} {
		g, n := newSuspendRig(t, strategy)
		g.annotate(memory.AnnotationClass, "local")
		g.annotate(pod.AnnotationSuspend, "true")
		if again := g.reconcile().RequeueAfter; again != memory.Poll {
			t.Errorf("again in %s", again)
		}
		g.printable(statusSuspending)
		pvcs := g.memoryPVCs()
		if len(pvcs) != 1 || *pvcs[0].Spec.StorageClassName != "local" || !metav1.IsControlledBy(&pvcs[0], g.vm()) {
			t.Fatalf("PVCs %+v", pvcs)
		}
		if p := g.mounted(); p.OwnerReferences[0].Kind != "Pod" {
			t.Errorf("the attachment pod belongs to %+v", p.OwnerReferences)
		}
		g.reconcile()
		if !n.ordered.Suspend || !n.ordered.Begin || n.ordered.Volume != suspendVolume {
			t.Errorf("order %+v", n.ordered)
		}
		// The node has decided: no other instance starts before the VM goes on from the memory.
		g.phase(kubevirt.Succeeded, func(vmi *kubevirt.VirtualMachineInstance) { vmi.Status.Reason = instances.ReasonSuspended })
		g.reconcile()
		if vm := g.vm(); vm.Annotations[pod.AnnotationResume] != pvcs[0].Name || strategy == always && *vm.Spec.RunStrategy != kubevirt.RunStrategyHalted {
			t.Errorf("annotations %v, strategy %s", vm.Annotations, *vm.Spec.RunStrategy)
		}
		g.ended()
		g.reconcile()
		g.printable(statusSuspended)

		if strategy == always {
			fakecluster.Change(t, g.Cluster, g.vm(), func(vm *kubevirt.VirtualMachine) { vm.Spec.RunStrategy = new(always) })
		} else {
			g.request(kubevirt.VirtualMachineStateChangeRequest{Action: kubevirt.StartRequest})
		}
		g.reconcile()
		if vmi := g.vmi(); vmi == nil || vmi.Annotations[pod.AnnotationResume] != pvcs[0].Name {
			t.Fatalf("%s: instance %+v", strategy, vmi)
		}
		g.reconcile()
		if vm := g.vm(); vm.Annotations[pod.AnnotationResume] != "" || vm.Annotations[pod.AnnotationSuspend] != "" {
			t.Errorf("annotations %v", vm.Annotations)
		}
		if len(g.memoryPVCs()) != 1 {
			t.Error("the memory is gone before the guest runs")
		}
		g.phase(kubevirt.Running)
		g.reconcile()
		g.printable(kubevirt.VirtualMachineStatusRunning)
		if left := g.memoryPVCs(); len(left) != 0 {
			t.Errorf("the memory is still there: %s", left[0].Name)
		}
	}
}

// TestSuspendEnds: no order reaches a guest that has ended, since its memory is saved. That is no error.
func TestSuspendEnds(t *testing.T) {
	for name, end := range map[string]func(*corev1.Pod){
		"by the condition": func(p *corev1.Pod) {
			p.Status.Conditions = []corev1.PodCondition{{Type: podcondition.VMReady, Status: corev1.ConditionFalse, Reason: podcondition.ReasonSuspended}}
		},
		"by the container": func(p *corev1.Pod) {
			p.Status.ContainerStatuses = []corev1.ContainerStatus{{Name: pod.Container, State: corev1.ContainerState{Terminated: new(corev1.ContainerStateTerminated)}}}
		},
	} {
		g, n := newSuspendRig(t, always)
		g.annotate(pod.AnnotationSuspend, "true")
		g.reconcile()
		g.mounted()
		n.fail = errors.New("container not found")
		own := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: web.Namespace, Name: pod.Current(g.vmi())}}
		end(own)
		g.Add(t, own)
		if again := g.reconcile().RequeueAfter; again != memory.Poll {
			t.Errorf("%s: again in %s", name, again)
		}
		if c := g.failure(); c != nil {
			t.Errorf("%s: failure %+v", name, c)
		}
	}
}

// TestSuspendFails: the guest runs on, and nothing is left of the attempt.
func TestSuspendFails(t *testing.T) {
	g, n := newSuspendRig(t, always)
	g.annotate(pod.AnnotationSuspend, "true")
	g.reconcile()
	g.mounted()
	n.fail = errors.New("a VM like this one cannot be resumed")
	g.Add(t, &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: web.Namespace, Name: pod.Current(g.vmi())}})
	if again := g.reconcile().RequeueAfter; again != suspendRetry {
		t.Errorf("again in %s", again)
	}
	if c := g.failure(); c == nil || c.Reason != reasonSuspend || !strings.Contains(c.Message, "cannot be resumed") {
		t.Errorf("failure %+v", c)
	}
	n.fail, n.state = nil, order.SaveFailed
	g.reconcile()
	if vm := g.vm(); wantsSuspend(vm) || g.vmi() == nil {
		t.Errorf("annotations %v", vm.Annotations)
	}
	g.reconcile()
	g.printable(kubevirt.VirtualMachineStatusRunning)
	if len(g.memoryPVCs()) != 0 {
		t.Error("the PVC is still there")
	}
	if said := g.Events(); !strings.Contains(said, "SuspendFailed") {
		t.Errorf("events %s", said)
	}
}

// TestNothingToSuspend: a request for a VM without a guest has no effect on its next one.
func TestNothingToSuspend(t *testing.T) {
	g := newRig(t)
	g.add(kubevirt.RunStrategyHalted, withUUID, func(vm *kubevirt.VirtualMachine) {
		vm.Annotations = map[string]string{pod.AnnotationSuspend: "true"}
	})
	g.reconcile()
	if wantsSuspend(g.vm()) {
		t.Error("its next guest is suspended at once")
	}
	left, _ := newSuspendRig(t, kubevirt.RunStrategyManual)
	left.annotate(pod.AnnotationSuspend, "true")
	left.reconcile()
	if n := len(left.memoryPVCs()); n != 1 {
		t.Fatalf("%d PVCs for the memory", n)
	}
	if err := left.Delete(t.Context(), left.vmi()); err != nil { // before its memory was saved
		t.Fatal(err)
	}
	left.ended()
	left.reconcile()
	if n := len(left.memoryPVCs()); n != 0 || wantsSuspend(left.vm()) {
		t.Errorf("%d PVCs stay for memory that was not saved", n)
	}
	once, _ := newSuspendRig(t, kubevirt.RunStrategyOnce)
	once.annotate(pod.AnnotationSuspend, "true")
	once.reconcile()
	if c := once.failure(); c == nil || !strings.Contains(c.Message, "use Manual") {
		t.Errorf("failure %+v", c)
	}
	for value, wrong := range map[string]bool{"yes": true, "true": false, "false": false} {
		if got := checkSuspend(map[string]string{pod.AnnotationSuspend: value}); (len(got) > 0) != wrong {
			t.Errorf("%s: %v", value, got)
		}
	}
}
