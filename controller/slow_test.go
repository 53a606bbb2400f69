package controller_test

import (
	"net/http"
	"testing"
	"time"

	kubevirt "kubevirt.io/api/core/v1"

	"github.com/nodevirt/nodevirt/controller"
)

// slowAnswer is how long each answer of the API server takes.
const slowAnswer = 5 * time.Second

// slow delays the API server's answers: each takes effect at once, and the controller learns of it late.
func slow(next http.RoundTripper) http.RoundTripper {
	return roundTripper(func(q *http.Request) (*http.Response, error) {
		answer, err := next.RoundTrip(q)
		select {
		case <-time.After(slowAnswer):
		case <-q.Context().Done():
		}
		return answer, err
	})
}

// TestSlowAPIServer: the controller keeps its lease, a VM runs and is deleted, and it never has two pods.
func TestSlowAPIServer(t *testing.T) {
	w := newWorld(t)
	w.node("slow")
	w.stop()
	w.between = slow
	w.startWith(controller.Options{LeaderElection: true, LeaderElectionNamespace: namespace})
	vm := w.vm("slow", kubevirt.RunStrategyAlways)
	w.watchTwo("slow")
	first := w.instanceOf("slow", nil)
	p := w.run(first, "slow")
	w.printable("slow", kubevirt.VirtualMachineStatusRunning)
	w.delete(vm)
	until(w, p, p.Name, "the pod's deletion", deleted)
	w.exited(p, 0)
	untilGone(w, p, p.Name)
	untilGone(w, first, "slow")
	untilGone(w, vm, "slow")
}
