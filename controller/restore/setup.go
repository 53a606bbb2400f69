package restore

import (
	"context"
	"fmt"
	"time"

	"k8s.io/client-go/util/workqueue"
	kubevirt "kubevirt.io/api/core/v1"
	api "kubevirt.io/api/snapshot/v1beta1"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/nodevirt/nodevirt/controller/index"
)

const (
	// indexTarget finds restores by the name of their VM.
	indexTarget = "nodevirt.io/restore-target"
	// workers reconcile at once; each mostly waits for the API server.
	workers = 8
	// timeout of one reconciliation: an API server that hangs must not hold a worker.
	timeout = time.Minute
)

func targetName(o client.Object) []string {
	return []string{o.(*api.VirtualMachineRestore).Spec.Target.Name}
}

// SetUp lets the manager run the reconciler. It looks again while it waits for PVCs.
func (r *Reconciler) SetUp(ctx context.Context, m manager.Manager, retries workqueue.TypedRateLimiter[reconcile.Request]) error {
	if err := m.GetFieldIndexer().IndexField(ctx, new(api.VirtualMachineRestore), indexTarget, targetName); err != nil {
		return fmt.Errorf("index restores by %s: %w", indexTarget, err)
	}
	ofVM := handler.EnqueueRequestsFromMapFunc(func(ctx context.Context, o client.Object) []reconcile.Request {
		return index.Requests(ctx, r.Client, new(api.VirtualMachineRestoreList), o.GetNamespace(), indexTarget, o.GetName())
	})
	err := ctrl.NewControllerManagedBy(m).
		Named("restore").
		For(new(api.VirtualMachineRestore)).
		Watches(new(kubevirt.VirtualMachine), ofVM).
		Watches(new(kubevirt.VirtualMachineInstance), ofVM).
		WithOptions(controller.Options{
			MaxConcurrentReconciles: workers,
			ReconciliationTimeout:   timeout,
			RateLimiter:             retries,
		}).
		Complete(r)
	if err != nil {
		return fmt.Errorf("set up the restores' controller: %w", err)
	}
	return nil
}
