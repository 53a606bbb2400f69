package vm

import (
	"context"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	kubevirt "kubevirt.io/api/core/v1"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"k8s.io/client-go/util/workqueue"

	"github.com/nodevirt/nodevirt/controller/index"
	"github.com/nodevirt/nodevirt/controller/instancetype"
)

const (
	// workers reconcile at once; each mostly waits for the API server.
	workers = 8
	// timeout of one reconciliation: an API server that hangs must not hold a worker.
	timeout = 30 * time.Second
)

// SetUp lets the manager run the reconciler.
func (r *Reconciler) SetUp(ctx context.Context, m manager.Manager, backoff workqueue.TypedRateLimiter[reconcile.Request]) error {
	if err := m.GetFieldIndexer().IndexField(ctx, new(kubevirt.VirtualMachine), index.PVC, pvcNames); err != nil {
		return fmt.Errorf("index VMs by %s: %w", index.PVC, err)
	}
	all := ctrl.NewControllerManagedBy(m).
		Named("vm").
		For(new(kubevirt.VirtualMachine)).
		Watches(new(kubevirt.VirtualMachineInstance), handler.EnqueueRequestsFromMapFunc(sameName)).
		Watches(new(corev1.PersistentVolumeClaim), handler.EnqueueRequestsFromMapFunc(r.ofPVC))
	for _, kind := range instancetype.Kinds() {
		all.WatchesMetadata(kind, handler.EnqueueRequestsFromMapFunc(r.whoWants))
	}
	err := all.
		WithOptions(controller.Options{
			MaxConcurrentReconciles: workers,
			ReconciliationTimeout:   timeout,
			RateLimiter:             backoff,
		}).
		Complete(r)
	if err != nil {
		return fmt.Errorf("set up the VM controller: %w", err)
	}
	return nil
}

// sameName is the VirtualMachine that an instance belongs to, or could.
func sameName(_ context.Context, o client.Object) []reconcile.Request {
	return []reconcile.Request{{NamespacedName: client.ObjectKeyFromObject(o)}}
}
