package export

import (
	"context"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/util/workqueue"
	kubevirt "kubevirt.io/api/core/v1"
	snapshotapi "kubevirt.io/api/snapshot/v1beta1"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/nodevirt/nodevirt/controller/index"
)

const (
	// indexSource finds exports by their source: KIND/NAME.
	indexSource = "nodevirt.io/export-source"
	// workers reconcile at once; each mostly waits for the API server.
	workers = 8
	// timeout of one reconciliation: an API server that hangs must not hold a worker.
	timeout = time.Minute
)

func sourceOf(o client.Object) []string {
	of := o.(*vmExport).Spec.Source
	return []string{of.Kind + "/" + of.Name}
}

// SetUp lets the manager run the reconciler. The indexes of VMs and instances by their PVCs exist.
func (r *Reconciler) SetUp(ctx context.Context, m manager.Manager, retries workqueue.TypedRateLimiter[reconcile.Request]) error {
	if err := m.GetFieldIndexer().IndexField(ctx, new(vmExport), indexSource, sourceOf); err != nil {
		return fmt.Errorf("index exports by %s: %w", indexSource, err)
	}
	err := ctrl.NewControllerManagedBy(m).
		Named("export").
		For(new(vmExport)).
		Owns(new(corev1.Pod)).
		Owns(new(corev1.PersistentVolumeClaim)).
		Watches(new(corev1.PersistentVolumeClaim), r.of(kindPVC)).
		Watches(new(kubevirt.VirtualMachine), r.of(kindVM)).
		Watches(new(kubevirt.VirtualMachineInstance), r.of(kindVM)).
		Watches(new(snapshotapi.VirtualMachineSnapshot), r.of(kindSnapshot)).
		WithOptions(controller.Options{
			MaxConcurrentReconciles: workers,
			ReconciliationTimeout:   timeout,
			RateLimiter:             retries,
		}).
		Complete(r)
	if err != nil {
		return fmt.Errorf("set up the exports' controller: %w", err)
	}
	return nil
}

// of returns the exports of an object. An instance has the name of its VM.
func (r *Reconciler) of(kind string) handler.EventHandler {
	return handler.EnqueueRequestsFromMapFunc(func(ctx context.Context, o client.Object) []reconcile.Request {
		return index.Requests(ctx, r.Client, new(vmExportList), o.GetNamespace(), indexSource, kind+"/"+o.GetName())
	})
}
