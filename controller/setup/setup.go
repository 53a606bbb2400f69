// Package setup completes the set-up of reconcilers: how many of their objects a
// manager reconciles at once, in which order, how long one may take, and when it tries again. It
// leaves what a reconciler watches to the reconciler's package.
package setup

import (
	"fmt"
	"time"

	"k8s.io/client-go/util/workqueue"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
)

// Options bound a reconciler's work.
type Options struct {
	// Workers reconcile at once. Each mostly waits for the API server, or for nodes.
	Workers int
	// Timeout of one reconciliation: an API server or a node that hangs must not hold
	// a worker.
	Timeout time.Duration
}

// Complete lets the manager of a builder run a reconciler with a name, which metrics
// and logs show. The builder has what the reconciler watches.
func Complete(b *ctrl.Builder, name string, r reconcile.Reconciler, o Options) error {
	err := b.Named(name).
		WithOptions(controller.Options{
			MaxConcurrentReconciles: o.Workers,
			ReconciliationTimeout:   o.Timeout,
			RateLimiter:             backoff(),
		}).
		Complete(Unhurried(r))
	if err != nil {
		return fmt.Errorf("set up the controller %s: %w", name, err)
	}
	return nil
}

// backoff returns the wait between tries of one object, without a limit for all
// together: that many objects fail must not keep others waiting.
func backoff() workqueue.TypedRateLimiter[reconcile.Request] {
	return workqueue.NewTypedItemExponentialFailureRateLimiter[reconcile.Request](10*time.Millisecond, 30*time.Second)
}
