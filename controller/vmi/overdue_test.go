package vmi

import (
	"errors"
	"slices"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	ctrl "sigs.k8s.io/controller-runtime"
)

// TestOverdue: a guest that runs on after its grace period, though the kubelet's stop may have been begun with a longer one, is
// powered off by its node. Until then the guest has its time.
func TestOverdue(t *testing.T) {
	g := newRig(t)
	p := g.started()
	remove := func(grace int64) {
		t.Helper()
		if err := g.Delete(t.Context(), p, client.GracePeriodSeconds(grace)); err != nil {
			t.Fatal(err)
		}
		if p = g.onePod(); p.DeletionGracePeriodSeconds == nil || *p.DeletionGracePeriodSeconds != grace {
			p.DeletionGracePeriodSeconds = &grace
			if err := g.Update(t.Context(), p); err != nil {
				t.Fatal(err)
			}
		}
	}
	quiet := func(when string) time.Duration {
		t.Helper()
		result := g.reconcile()
		if len(g.orders) > 0 {
			t.Fatalf("%s: %v", when, g.orders)
		}
		return result.RequeueAfter
	}
	quiet("while it runs")
	remove(600)
	if wait := quiet("when it is asked to shut down"); wait <= 0 || wait > 602*time.Second {
		t.Errorf("looks again in %s", wait)
	}
	g.now = g.now.Add(75 * time.Second)
	quiet("while it shuts down")
	remove(1)
	if wait := quiet("when its time is shortened"); wait <= 0 || wait > 3*time.Second {
		t.Errorf("looks again in %s", wait)
	}
	g.now = g.now.Add(3 * time.Second)
	g.refusal = errors.New("the node does not answer")
	if _, err := g.r.Reconcile(t.Context(), ctrl.Request{NamespacedName: web}); !errors.Is(err, g.refusal) {
		t.Errorf("%v", err)
	}
	g.refusal = nil
	g.reconcile()
	if want := []string{p.Name + " " + OrderPowerOff}; !slices.Equal(g.orders, want) {
		t.Fatalf("orders %v, want %v", g.orders, want)
	}
	g.orders = nil
	g.ready("node1", corev1.ConditionUnknown)
	quiet("with a node that does not report")
	g.ready("node1", corev1.ConditionTrue)
	g.state(g.onePod(), crashed)
	quiet("when it has ended")
	if n := len(g.r.follower.overdue.(*overdue).pods); n != 0 {
		t.Errorf("%d pods are kept", n)
	}
}
