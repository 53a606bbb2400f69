package controller_test

import (
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/util/retry"
	kubevirt "kubevirt.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/nodevirt/nodevirt/controller/pod"
)

// What a scheduler and a kubelet would write, written by the test.

// node makes a node that is ready.
func (w *world) node(name string) *corev1.Node {
	w.Helper()
	n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}}
	if err := w.Create(w.Context(), n); err != nil {
		w.Fatal(err)
	}
	w.ready(n, corev1.ConditionTrue)
	return n
}

func (w *world) ready(n *corev1.Node, status corev1.ConditionStatus) {
	w.Helper()
	w.change(n, true, func() {
		n.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, Status: status}}
	})
}

// change reads an object, changes it and writes it, or its status, and retries
// on conflicts.
func (w *world) change(o client.Object, status bool, change func()) {
	w.Helper()
	err := retry.RetryOnConflict(retry.DefaultBackoff, func() error {
		if err := w.Get(w.Context(), client.ObjectKeyFromObject(o), o); err != nil {
			return err
		}
		change()
		if status {
			return w.Status().Update(w.Context(), o)
		}
		return w.Update(w.Context(), o)
	})
	if err != nil {
		w.Fatalf("change %s: %v", o.GetName(), err)
	}
}

// podOf waits for the pod of an instance.
func (w *world) podOf(vmi *kubevirt.VirtualMachineInstance) *corev1.Pod {
	w.Helper()
	return until(w, new(corev1.Pod), pod.Name(vmi), "the pod", func(*corev1.Pod) bool { return true })
}

func (w *world) bind(p *corev1.Pod, node string) {
	w.Helper()
	b := &corev1.Binding{Target: corev1.ObjectReference{Kind: "Node", Name: node}}
	if err := w.SubResource("binding").Create(w.Context(), p, b); err != nil {
		w.Fatalf("bind %s: %v", p.Name, err)
	}
}

// state reports the VM's container in a state.
func (w *world) state(p *corev1.Pod, phase corev1.PodPhase, state corev1.ContainerState) {
	w.Helper()
	ready := corev1.ConditionFalse
	if state.Running != nil {
		ready = corev1.ConditionTrue
	}
	w.change(p, true, func() {
		p.Status.Phase = phase
		p.Status.PodIP, p.Status.PodIPs = "10.1.2.3", []corev1.PodIP{{IP: "10.1.2.3"}}
		p.Status.ContainerStatuses = []corev1.ContainerStatus{{Name: pod.Container, State: state}}
		kept := p.Status.Conditions[:0]
		for _, c := range p.Status.Conditions {
			if c.Type != corev1.PodReady {
				kept = append(kept, c)
			}
		}
		p.Status.Conditions = append(kept, corev1.PodCondition{Type: corev1.PodReady, Status: ready})
	})
}

func (w *world) running(p *corev1.Pod) {
	w.Helper()
	w.state(p, corev1.PodRunning, corev1.ContainerState{Running: &corev1.ContainerStateRunning{StartedAt: metav1.Now()}})
}

// exited is the end of a guest, as a kubelet reports it, and, of a pod that is
// being deleted, the removal that follows.
func (w *world) exited(p *corev1.Pod, code int32) {
	w.Helper()
	phase, reason := corev1.PodSucceeded, "Completed"
	if code != 0 {
		phase, reason = corev1.PodFailed, "Error"
	}
	w.state(p, phase, corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{ExitCode: code, Reason: reason}})
	if p.DeletionTimestamp != nil {
		w.forceDelete(p)
	}
}

func (w *world) forceDelete(p *corev1.Pod) {
	w.Helper()
	err := w.Delete(w.Context(), p, client.GracePeriodSeconds(0), client.Preconditions{UID: &p.UID})
	if err != nil && !apierrors.IsNotFound(err) {
		w.Fatalf("delete %s: %v", p.Name, err)
	}
}
