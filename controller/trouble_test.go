package controller_test

import (
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	kubevirt "kubevirt.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// event waits for an event about an object, with a reason and words in it.
func (w *world) event(name, reason, words string) {
	w.Helper()
	var all []string
	eventually(w, func() bool {
		var events eventsv1.EventList
		if err := w.List(w.Context(), &events, inNamespace); err != nil {
			w.Fatal(err)
		}
		all = nil
		for _, e := range events.Items {
			if e.Regarding.Name != name {
				continue
			}
			all = append(all, e.Reason+": "+e.Note)
			if e.Reason == reason && strings.Contains(e.Note, words) {
				return true
			}
		}
		return false
	}, func() string { return "event " + reason + ", " + words + ", among\n" + strings.Join(all, "\n") })
}

// TestTrouble: what keeps a guest from running is reported on the VMI and the VM,
// and by an event.
func TestTrouble(t *testing.T) {
	w := newWorld(t)
	w.node("trouble")
	w.vm("trouble", kubevirt.RunStrategyAlways)
	vmi := w.instanceOf("trouble", nil)
	p := w.podOf(vmi)
	w.change(p, true, func() {
		p.Status.Conditions = []corev1.PodCondition{{
			Type: corev1.PodScheduled, Status: corev1.ConditionFalse, Reason: "Unschedulable", Message: "0/1 nodes are available",
		}}
	})
	w.printable("trouble", kubevirt.VirtualMachineStatusUnschedulable)
	w.event("trouble", "FailedScheduling", "0/1 nodes")

	w.bind(p, "trouble")
	w.waiting(p, "ErrImagePull", "no such image")
	w.printable("trouble", kubevirt.VirtualMachineStatusErrImagePull)
	w.event("trouble", "ErrImagePull", "no such image")
	w.waiting(p, "ImagePullBackOff", "Back-off pulling image")
	vm := w.printable("trouble", kubevirt.VirtualMachineStatusImagePullBackOff)
	if s := vmCondition(vm, "Synchronized"); s.Status != corev1.ConditionFalse || s.Message != "Back-off pulling image" {
		t.Errorf("condition %+v", s)
	}
	w.running(p)
	vm = w.printable("trouble", kubevirt.VirtualMachineStatusRunning)
	if s := vmCondition(vm, "Synchronized"); s.Type != "" {
		t.Errorf("condition %+v", s)
	}
}

// TestSilentNode: only a pod's events say why it has no sandbox.
func TestSilentNode(t *testing.T) {
	w := newWorld(t)
	w.node("silent")
	vmi := w.vmi("silent")
	p := w.podOf(vmi)
	w.bind(p, "silent")
	if err := w.Create(t.Context(), &corev1.Event{
		ObjectMeta:     metav1.ObjectMeta{GenerateName: "silent", Namespace: namespace},
		InvolvedObject: corev1.ObjectReference{Kind: "Pod", Namespace: namespace, Name: p.Name, UID: p.UID},
		Type:           corev1.EventTypeWarning, Reason: "FailedCreatePodSandBox", Message: "no runtime for vm",
		LastTimestamp: metav1.Now(),
	}); err != nil {
		t.Fatal(err)
	}
	w.event("silent", "FailedCreatePodSandBox", "no runtime for vm")
}

// TestFailedCreate: an instance whose pod can't be made says why, and starts when
// it can.
func TestFailedCreate(t *testing.T) {
	w := newWorld(t)
	w.node("refused")
	class := &corev1.ResourceQuota{ObjectMeta: metav1.ObjectMeta{Name: "none", Namespace: namespace}}
	class.Spec.Hard = corev1.ResourceList{"count/pods": resource.MustParse("0")}
	if err := w.Create(t.Context(), class); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = client.IgnoreNotFound(w.Delete(t.Context(), class)) })
	w.change(class, true, func() {
		class.Status.Hard, class.Status.Used = class.Spec.Hard, corev1.ResourceList{"count/pods": resource.MustParse("0")}
	})
	vmi := w.vmi("refused")
	w.event("refused", "FailedCreate", "exceeded quota")
	w.phase("refused", kubevirt.Pending)
	w.delete(class)
	w.run(vmi, "refused")

	bad := newVMI("unsupported")
	bad.Spec.Domain.Devices.Watchdog = &kubevirt.Watchdog{Name: "dog", WatchdogDevice: kubevirt.WatchdogDevice{Diag288: &kubevirt.Diag288Watchdog{}}}
	if err := w.Create(t.Context(), bad); err != nil {
		t.Fatal(err)
	}
	w.event("unsupported", "FailedCreate", "spec.domain.devices.watchdog.diag288: not supported")
	w.delete(bad)
	untilGone(w, bad, bad.Name)
}

func (w *world) waiting(p *corev1.Pod, reason, message string) {
	w.Helper()
	w.state(p, corev1.PodPending, corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: reason, Message: message}})
}

func vmCondition(vm *kubevirt.VirtualMachine, kind string) kubevirt.VirtualMachineCondition {
	for _, c := range vm.Status.Conditions {
		if string(c.Type) == kind {
			return c
		}
	}
	return kubevirt.VirtualMachineCondition{}
}
