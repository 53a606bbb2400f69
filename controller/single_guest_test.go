package controller_test

import (
	"context"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	kubevirt "kubevirt.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"
)

// watchTwo fails the test if there are ever two pods of instances of a name whose
// guests may run.
func (w *world) watchTwo(name string) {
	ctx, cancel := context.WithCancel(w.Context())
	var group sync.WaitGroup
	w.Cleanup(func() {
		cancel()
		group.Wait()
	})
	group.Go(func() {
		for ctx.Err() == nil {
			var pods corev1.PodList
			err := w.List(ctx, &pods, inNamespace, named(name))
			live := 0
			for _, p := range pods.Items {
				s := p.Status.ContainerStatuses
				if len(p.Finalizers) > 0 && (len(s) == 0 || s[0].State.Terminated == nil) {
					live++
				}
			}
			if err == nil && live > 1 {
				w.Errorf("%d pods of %s may have a guest", live, name)
				return
			}
			time.Sleep(5 * time.Millisecond)
		}
	})
}

// TestNeverTwo: whatever a user deletes while a kubelet is away and its guest
// lives, no second guest starts until the first has ended.
func TestNeverTwo(t *testing.T) {
	w := newWorld(t)
	for name, harm := range map[string]func(*corev1.Pod, *kubevirt.VirtualMachineInstance){
		"two-pod": func(p *corev1.Pod, _ *kubevirt.VirtualMachineInstance) { w.forceDelete(p) },
		"two-vmi": func(_ *corev1.Pod, vmi *kubevirt.VirtualMachineInstance) { w.delete(vmi) },
		"two-vmi-force": func(_ *corev1.Pod, vmi *kubevirt.VirtualMachineInstance) {
			w.delete(vmi, client.GracePeriodSeconds(0))
		},
		"two-orphan": func(p *corev1.Pod, vmi *kubevirt.VirtualMachineInstance) {
			w.delete(vmi, client.PropagationPolicy(metav1.DeletePropagationOrphan))
			// As Kubernetes' garbage collector does then.
			w.change(p, false, func() { p.OwnerReferences = nil })
			w.change(vmi, false, func() { controllerutil.RemoveFinalizer(vmi, metav1.FinalizerOrphanDependents) })
		},
		"two-finalizer": func(_ *corev1.Pod, vmi *kubevirt.VirtualMachineInstance) {
			w.delete(vmi)
			w.change(vmi, false, func() { vmi.Finalizers = nil })
		},
		"two-label": func(p *corev1.Pod, _ *kubevirt.VirtualMachineInstance) {
			w.change(p, false, func() { delete(p.Labels, kubevirt.AppLabel) })
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel() // most of it is the wait of a VM that ended early
			w.in(t).survive(name, harm)
		})
	}
}

// TestNeverTwoRestart is the same with a controller that is away meanwhile.
func TestNeverTwoRestart(t *testing.T) {
	w := newWorld(t)
	w.survive("two-restart", func(p *corev1.Pod, vmi *kubevirt.VirtualMachineInstance) {
		w.stop()
		w.forceDelete(p)
		w.delete(vmi)
		w.start()
	})
}

// survive harms a VM whose kubelet is away, and then lets the kubelet come back.
func (w *world) survive(name string, harm func(*corev1.Pod, *kubevirt.VirtualMachineInstance)) {
	n := w.node(name)
	w.vm(name, kubevirt.RunStrategyAlways)
	first := w.instanceOf(name, nil)
	p := w.run(first, n.Name)
	w.watchTwo(name)
	w.ready(n, corev1.ConditionUnknown)
	w.phase(name, kubevirt.Unknown)
	harm(p, first)
	w.stays(p)
	w.ready(n, corev1.ConditionTrue)
	w.stays(p)
	w.exited(p, 1)
	w.run(w.instanceOf(name, first), n.Name)
}

// TestDeadNode: an instance of a node that is away starts elsewhere only when a
// user vouches for its end.
func TestDeadNode(t *testing.T) {
	w := newWorld(t)
	w.node("alive")
	for name, vouch := range map[string]func(*corev1.Node){
		"dead-gone": func(n *corev1.Node) { w.delete(n) },
		"dead-left": func(n *corev1.Node) { w.delete(n) },
		"dead-tainted": func(n *corev1.Node) {
			w.change(n, false, func() {
				n.Spec.Taints = []corev1.Taint{{Key: corev1.TaintNodeOutOfService, Effect: corev1.TaintEffectNoExecute}}
			})
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := w.in(t)
			n := w.node(name)
			w.vm(name, kubevirt.RunStrategyAlways)
			first := w.instanceOf(name, nil)
			p := w.run(first, name)
			w.watchTwo(name)
			w.ready(n, corev1.ConditionUnknown)
			vm := w.printable(name, kubevirt.VirtualMachineStatusUnknown)
			if ready := vmCondition(vm, string(kubevirt.VirtualMachineReady)); ready.Status != corev1.ConditionUnknown {
				w.Errorf("of a lost node: %+v", ready)
			}
			if name != "dead-left" {
				w.forceDelete(p)
			}
			w.stays(p)
			vouch(n)
			untilGone(w, p, p.Name) // though no kubelet confirms it
			w.run(w.instanceOf(name, first), "alive")
		})
	}
}

// in is the same world for a subtest.
func (w *world) in(t *testing.T) *world {
	sub := *w
	sub.TB = t
	return &sub
}

func (w *world) delete(o client.Object, how ...client.DeleteOption) {
	w.Helper()
	if err := w.Delete(w.Context(), o, how...); err != nil {
		w.Fatalf("delete %s: %v", o.GetName(), err)
	}
}
