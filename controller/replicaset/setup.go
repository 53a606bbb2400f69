package replicaset

import (
	"context"
	"fmt"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/client-go/util/workqueue"
	kubevirt "kubevirt.io/api/core/v1"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/nodevirt/nodevirt/controller/index"
)

const (
	// workers reconcile at once; each mostly waits for the API server.
	workers = 4
	// timeout of one reconciliation: an API server that hangs must not hold a worker.
	timeout = time.Minute
)

// SetUp lets the manager run the reconciler.
func (r *Reconciler) SetUp(ctx context.Context, m manager.Manager, retries workqueue.TypedRateLimiter[reconcile.Request]) error {
	if err := m.GetFieldIndexer().IndexField(ctx, new(instance), index.Owner, index.OwnerOf); err != nil {
		return fmt.Errorf("index VMIs by owner: %w", err)
	}
	err := ctrl.NewControllerManagedBy(m).
		Named("replicaset").
		For(new(replicaSet)).
		Watches(new(instance), handler.EnqueueRequestsFromMapFunc(r.setsOf)).
		WithOptions(controller.Options{
			MaxConcurrentReconciles: workers,
			ReconciliationTimeout:   timeout,
			RateLimiter:             retries,
		}).
		Complete(r)
	if err != nil {
		return fmt.Errorf("set up the replica set controller: %w", err)
	}
	return nil
}

// setsOf returns the replica set that owns an instance or, if it has no owner, the
// sets that may adopt it.
func (r *Reconciler) setsOf(ctx context.Context, o client.Object) []reconcile.Request {
	if owner := metav1.GetControllerOf(o); owner != nil {
		if owner.Kind != kubevirt.VirtualMachineInstanceReplicaSetGroupVersionKind.Kind {
			return nil
		}
		return []reconcile.Request{{NamespacedName: client.ObjectKey{Namespace: o.GetNamespace(), Name: owner.Name}}}
	}
	var sets kubevirt.VirtualMachineInstanceReplicaSetList
	err := r.Client.List(ctx, &sets, client.InNamespace(o.GetNamespace()), client.DisableReadYourWritesConsistency)
	if err != nil {
		return nil
	}
	var all []reconcile.Request
	for i := range sets.Items {
		selector, err := selectorOf(&sets.Items[i])
		if err == nil && selector.Matches(labels.Set(o.GetLabels())) {
			all = append(all, reconcile.Request{NamespacedName: client.ObjectKeyFromObject(&sets.Items[i])})
		}
	}
	return all
}
