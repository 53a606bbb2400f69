package snapshot

import (
	"encoding/json"
	"errors"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	kubevirt "kubevirt.io/api/core/v1"
	api "kubevirt.io/api/snapshot/v1beta1"

	"github.com/nodevirt/nodevirt/controller/memory"
	"github.com/nodevirt/nodevirt/shim/vm/hotplug/order"
	"github.com/nodevirt/nodevirt/test/fakecluster"
)

// control does what package save of the shim does with an order.
func (n *fakeNode) control(name, argument string) ([]byte, error) {
	var save order.Save
	if err := json.Unmarshal([]byte(argument), &save); err != nil {
		return nil, err
	}
	volume := save.Volume
	switch {
	case name == order.MemorySaveEnd:
		var of order.Name
		_ = json.Unmarshal([]byte(argument), &of)
		if volume = of.Name; n.saved == order.SaveHeld {
			n.saved = order.SaveCompleted
		}
	case n.saved == "" && save.Begin && len(save.Disks) > 0:
		n.saved, n.disks = order.SaveHeld, save.Disks
	case n.saved == "" && save.Begin:
		n.saved = order.SaveCompleted
	}
	answer := order.Saved{Volume: volume, State: n.saved}
	switch n.saved {
	case "":
		answer.State = order.SaveNone
	case order.SaveFailed:
		answer.Message, n.saved = "no space left on device", ""
	}
	return json.Marshal(answer)
}

func withMemory(s *vmSnapshot) {
	s.UID, s.Annotations = "0d2c5a5e-0000-4000-8000-000000000001", map[string]string{AnnotationMemory: "true", memory.AnnotationClass: "local"}
}

// mounted has the attachment pod's container run, as the kubelet does.
func (g *rig) mounted() *corev1.Pod {
	g.t.Helper()
	var all corev1.PodList
	if err := g.List(g.t.Context(), &all); err != nil || len(all.Items) != 1 {
		g.t.Fatalf("%d pods: %v", len(all.Items), err)
	}
	p := &all.Items[0]
	p.Status.ContainerStatuses = []corev1.ContainerStatus{{
		ContainerID: "containerd://" + strings.Repeat("a", 64), State: corev1.ContainerState{Running: new(corev1.ContainerStateRunning)},
	}}
	if err := g.Status().Update(g.t.Context(), p); err != nil {
		g.t.Fatal(err)
	}
	return p
}

// TestMemory: the memory is saved to a PVC of the content, and the VolumeSnapshots are taken while
// the guest is held. The snapshot is ready only then.
func TestMemory(t *testing.T) {
	g := newRig(t)
	g.runs(g.vm(), agent)
	g.snapshot("one", withMemory)
	g.reconcile("one")
	s := g.is("one", api.InProgress, "Source locked and operation in progress")
	content := g.content(s)
	pvc := &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: MemoryPVC(content)}}
	if !g.Exists(t, pvc) || !metav1.IsControlledBy(pvc, content) || *pvc.Spec.StorageClassName != "local" ||
		pvc.Spec.Resources.Requests.Storage().Value() < memory.Slack {
		t.Errorf("PVC %+v", pvc)
	}
	p := g.mounted()
	if !metav1.IsControlledBy(p, content) || p.Labels[kubevirt.AppLabel] != memory.Label || !strings.HasPrefix(p.Name, "hp-volume-memory-") {
		t.Errorf("attachment pod %+v", p.ObjectMeta)
	}
	g.reconcile("one")
	if g.node.saved != order.SaveHeld || len(g.driver.all) != 2 || strings.Join(g.node.disks, " ") != "root data" {
		t.Errorf("the guest is %q for %v, %d VolumeSnapshots", g.node.saved, g.node.disks, len(g.driver.all))
	}
	g.driver.take(true)
	if g.get("one").Status.ReadyToUse == nil || *g.get("one").Status.ReadyToUse {
		t.Error("a snapshot of a guest that is held is ready")
	}
	g.reconcile("one")
	s = g.is("one", api.Succeeded, "Operation complete")
	if g.node.saved != order.SaveCompleted || !*s.Status.ReadyToUse || g.lockedBy() != "" || g.Exists(t, p) {
		t.Errorf("the guest is %q, status %+v", g.node.saved, s.Status)
	}
	if said := g.node.said(); strings.Contains(said, controlFreeze+" ") {
		t.Errorf("orders %s", said)
	}
}

// TestMemoryOnALostNode: a guest whose node is lost leaves no attachment pod that keeps the PVC there.
func TestMemoryOnALostNode(t *testing.T) {
	g := newRig(t)
	vm := g.vm()
	g.runs(vm)
	g.snapshot("one", withMemory)
	g.reconcile("one")
	p := g.mounted()
	vmi := &kubevirt.VirtualMachineInstance{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: vm.Name}}
	fakecluster.Change(t, g.Cluster, vmi, func(vmi *kubevirt.VirtualMachineInstance) { vmi.Status.Phase = kubevirt.Unknown })
	g.reconcile("one")
	if s := g.is("one", api.InProgress, inProgress); !strings.Contains(*s.Status.Error.Message, "the VM does not run") || g.Exists(t, p) {
		t.Errorf("status %+v, attachment pod %+v", s.Status, p.ObjectMeta)
	}
}

// TestMemoryFails: VolumeSnapshots of a save that failed are deleted before another one begins.
func TestMemoryFails(t *testing.T) {
	g := newRig(t)
	g.runs(g.vm())
	g.snapshot("one", withMemory)
	g.reconcile("one")
	g.mounted()
	g.node.fail = errors.New("the node is away")
	g.reconcile("one")
	if s := g.is("one", api.InProgress, inProgress); !strings.Contains(*s.Status.Error.Message, "the node is away") {
		t.Errorf("status %+v", s.Status)
	}
	g.node.fail = nil
	g.reconcile("one")
	g.driver.take(true)
	g.node.saved = order.SaveFailed // such as by its lease
	g.reconcile("one")
	if s := g.is("one", api.InProgress, inProgress); !strings.Contains(*s.Status.Error.Message, "no space left") || len(g.driver.all) > 0 {
		t.Errorf("status %+v, %d VolumeSnapshots", s.Status, len(g.driver.all))
	}
	g.reconcile("one")
	if g.node.saved != order.SaveHeld || len(g.driver.all) != 2 {
		t.Errorf("the guest is %q, %d VolumeSnapshots", g.node.saved, len(g.driver.all))
	}
	// The deadline lets the guest go on, and no content remains.
	g.now = g.now.Add(api.DefaultFailureDeadline + 1)
	g.reconcile("one")
	if s := g.is("one", api.Failed, ""); g.content(s) != nil || g.node.saved == order.SaveHeld {
		t.Errorf("the guest is %q, content %+v", g.node.saved, g.content(s))
	}
}

// TestMemoryWithoutPVCs: a snapshot without VolumeSnapshots is not ready before it has the memory.
func TestMemoryWithoutPVCs(t *testing.T) {
	g := newRig(t)
	g.runs(g.vm(func(vm *kubevirt.VirtualMachine) {
		vm.Spec.Template.Spec.Volumes = vm.Spec.Template.Spec.Volumes[2:]
	}))
	g.snapshot("one", withMemory)
	g.reconcile("one")
	if s := g.is("one", api.InProgress, ""); *s.Status.ReadyToUse || *g.content(s).Status.ReadyToUse {
		t.Errorf("status %+v", s.Status)
	}
	g.mounted()
	g.reconcile("one")
	if s := g.is("one", api.Succeeded, ""); !*s.Status.ReadyToUse {
		t.Errorf("status %+v", s.Status)
	}
}

// TestMemoryOfHaltedVM: a guest that does not run has no memory.
func TestMemoryOfHaltedVM(t *testing.T) {
	g := newRig(t)
	g.vm()
	g.snapshot("one", withMemory)
	g.reconcile("one")
	g.is("one", api.InProgress, "Source not locked source does not run")
	for annotation, value := range map[string]string{AnnotationMemory: "yes", memory.AnnotationSize: "-1Gi"} {
		if len(checkMemory(map[string]string{annotation: value})) == 0 {
			t.Errorf("%s=%s is accepted", annotation, value)
		}
	}
}
