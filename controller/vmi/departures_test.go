package vmi

import (
	"strings"
	"testing"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	kubevirt "kubevirt.io/api/core/v1"

	"github.com/nodevirt/nodevirt/test/fakecluster"
)

// collect does the work of Kubernetes' pod GC for a pod whose Node was deleted.
func (g *rig) collect(p *corev1.Pod) {
	g.t.Helper()
	fakecluster.Change(g.t, g.Cluster, p, func(p *corev1.Pod) {
		p.Status.Phase = corev1.PodFailed
		p.Status.Conditions = append(p.Status.Conditions, corev1.PodCondition{
			Type: corev1.DisruptionTarget, Status: corev1.ConditionTrue, Reason: "DeletionByPodGC", Message: "PodGC: node no longer exists",
		})
	})
	if err := g.Delete(g.t.Context(), p); err != nil {
		g.t.Fatal(err)
	}
}

// TestDeletedNode: a Node that is deleted while its kubelet lives takes no guest along. Its pod stays until the kubelet
// reports the guest's end.
func TestDeletedNode(t *testing.T) {
	for name, before := range map[string]func(*rig){
		"ready":     func(*rig) {},
		"not ready": func(g *rig) { g.ready("node1", corev1.ConditionFalse) },
		"back in the last moment, as its lease says": func(g *rig) {
			g.ready("node1", corev1.ConditionUnknown)
			g.renew("node1")
			g.deleteNode("node1")
			g.reconcile()
			g.now = g.now.Add(beat / 2)
			g.renew("node1")
		},
	} {
		t.Run(name, func(t *testing.T) {
			g := newRig(t)
			p := g.started()
			before(g)
			if g.Exists(t, &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "node1"}}) {
				g.deleteNode("node1")
			}
			g.collect(p)
			again := g.reconcile().RequeueAfter
			if phase, reason := g.vmi().Status.Phase, g.vmi().Status.Reason; phase != kubevirt.Unknown || reason != ReasonNodeDeleted || !g.Exists(t, p) {
				t.Fatalf("phase %s, reason %s; the pod must stay", phase, reason)
			}
			if again == 0 || again > leasePoll {
				t.Errorf("looks again after %s", again)
			}
			if e := g.Events(); !strings.Contains(e, "Warning NodeDeleted") {
				t.Errorf("events: %s", e)
			}
			g.now = g.now.Add(patience(p) - time.Second)
			g.reconcile()
			if !g.Exists(t, p) {
				t.Fatal("released while the guest may shut down")
			}
			g.state(p, completed)
			g.reconcile()
			if g.Exists(t, p) {
				t.Error("the pod must go: its kubelet reported the guest's end")
			}
		})
	}
}

// TestSilentNode: a deleted Node's guests have ended when nothing was heard of its kubelet for the grace period and a
// margin, also if the controller has restarted and never saw the Node.
func TestSilentNode(t *testing.T) {
	for name, forget := range map[string]func(*rig){
		"seen":     func(*rig) {},
		"not seen": func(g *rig) { g.wire(func(*Options) {}) },
	} {
		t.Run(name, func(t *testing.T) {
			g := newRig(t)
			p := g.started()
			g.renew("node1")
			g.deleteNode("node1")
			forget(g)
			g.collect(p)
			g.reconcile()
			for range 20 { // the kubelet lives
				g.now = g.now.Add(leasePoll)
				g.renew("node1")
				g.reconcile()
			}
			if !g.Exists(t, p) {
				t.Fatal("released while the lease is renewed")
			}
			// The collector of garbage removes the lease with its Node.
			l := &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Namespace: corev1.NamespaceNodeLease, Name: "node1"}}
			if err := g.Delete(t.Context(), l); err != nil {
				t.Fatal(err)
			}
			g.now = g.now.Add(patience(p) - time.Second)
			g.reconcile()
			if !g.Exists(t, p) {
				t.Fatal("released before the time is over")
			}
			g.now = g.now.Add(time.Second)
			g.reconcile()
			if phase := g.vmi().Status.Phase; phase != kubevirt.Failed || g.Exists(t, p) {
				t.Errorf("phase %s; the pod must go", phase)
			}
		})
	}
}

// TestReturnedNode: a Node that registers again has its guests.
func TestReturnedNode(t *testing.T) {
	g := newRig(t)
	p := g.started()
	g.deleteNode("node1")
	g.reconcile()
	g.Add(t, &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "node1"}, Status: corev1.NodeStatus{
		Conditions: []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue}}}})
	g.now = g.now.Add(time.Hour)
	g.reconcile()
	if phase := g.vmi().Status.Phase; phase != kubevirt.Running {
		t.Errorf("phase %s", phase)
	}
	g.deleteNode("node1")
	g.now = g.now.Add(time.Second)
	g.reconcile()
	if phase := g.vmi().Status.Phase; phase != kubevirt.Unknown || !g.Exists(t, p) {
		t.Errorf("phase %s", phase)
	}
}

// TestCollected: the phase that Kubernetes' pod GC gives a pod says nothing of a guest that its kubelet may have started.
func TestCollected(t *testing.T) {
	g := newRig(t)
	g.add()
	g.reconcile()
	p := g.onePod()
	g.bind(p, "node1")
	g.state(p, creating)
	g.deleteNode("node1")
	g.collect(p)
	g.reconcile()
	if !g.Exists(t, p) {
		t.Fatal("released while the guest may start")
	}
	g.state(p, crashed)
	g.reconcile()
	if g.Exists(t, p) {
		t.Error("the pod must go: its kubelet reported the end")
	}
}

// TestPatienceBound: no grace period is so long that it counts as over.
func TestPatienceBound(t *testing.T) {
	p := &corev1.Pod{Spec: corev1.PodSpec{TerminationGracePeriodSeconds: new(int64(1 << 62))}}
	if got := patience(p); got < 24*time.Hour {
		t.Errorf("%s", got)
	}
}
