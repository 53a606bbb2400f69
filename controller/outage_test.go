package controller_test

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	kubevirt "kubevirt.io/api/core/v1"
)

// TestOutage: what happened while the controller or the API server was away is
// made up for.
func TestOutage(t *testing.T) {
	w := newWorld(t)
	w.node("outage")
	w.vm("outage-a", kubevirt.RunStrategyAlways)
	w.watchTwo("outage-a")
	a := w.run(w.instanceOf("outage-a", nil), "outage")

	w.stop()
	gone := w.vmi("outage-gone")
	w.delete(gone)
	b := w.vmi("outage-b")
	w.exited(a, 0)
	w.start()
	until(w, new(kubevirt.VirtualMachine), "outage-a", "the end of its guest",
		func(vm *kubevirt.VirtualMachine) bool { return vm.Status.StartFailure != nil })
	p := w.podOf(b)
	untilGone(w, gone, gone.Name)

	w.server.Stop()
	if err := w.server.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	w.bind(p, "outage")
	w.running(p)
	w.phase("outage-b", kubevirt.Running)
	c := w.vmi("outage-c")
	w.run(c, "outage")

	// The API server goes while a guest ends.
	w.delete(c)
	p = w.podOf(c)
	until(w, p, p.Name, "the pod's deletion", deleted)
	w.server.Stop()
	if err := w.server.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	w.exited(p, 0)
	untilGone(w, c, c.Name)
	untilGone(w, p, p.Name)
	if n := len(w.pods("outage-a")); n > 1 {
		t.Errorf("%d pods", n)
	}
}

// TestConflicts: others write to what the controller writes, all the time.
func TestConflicts(t *testing.T) {
	w := newWorld(t)
	w.node("conflicts")
	vmi := w.vmi("conflicts")
	done := make(chan struct{})
	stop := make(chan struct{})
	go func() {
		defer close(done)
		for {
			select {
			case <-stop:
				return
			default:
			}
			_ = w.touch(vmi.DeepCopy(), &kubevirt.VirtualMachineInstance{})
		}
	}()
	p := w.run(vmi, "conflicts")
	w.delete(vmi)
	until(w, p, p.Name, "the pod's deletion", deleted)
	w.exited(p, 0)
	untilGone(w, p, p.Name)
	close(stop)
	<-done
	untilGone(w, vmi, vmi.Name)
}

func (w *world) pods(name string) []corev1.Pod {
	w.Helper()
	var pods corev1.PodList
	if err := w.List(w.Context(), &pods, inNamespace, named(name)); err != nil {
		w.Fatal(err)
	}
	return pods.Items
}
