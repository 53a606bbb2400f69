package snapshot

import (
	"context"
	"fmt"
	"time"

	kubevirt "kubevirt.io/api/core/v1"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/nodevirt/nodevirt/controller/index"
	"github.com/nodevirt/nodevirt/controller/setup"
)

const (
	// indexSource finds snapshots by the name of their VM.
	indexSource = "nodevirt.io/snapshot-source"
)

func sourceName(o client.Object) []string { return []string{o.(*vmSnapshot).Spec.Source.Name} }

// SetUp lets the manager run the reconciler. VolumeSnapshots have no watch: the reconciler
// looks again while it waits for them.
func (r *Reconciler) SetUp(ctx context.Context, m manager.Manager) error {
	if err := m.GetFieldIndexer().IndexField(ctx, new(vmSnapshot), indexSource, sourceName); err != nil {
		return fmt.Errorf("index snapshots by %s: %w", indexSource, err)
	}
	all := ctrl.NewControllerManagedBy(m).
		For(new(vmSnapshot)).
		Watches(new(kubevirt.VirtualMachine), handler.EnqueueRequestsFromMapFunc(r.ofSource)).
		Watches(new(vmContent), handler.EnqueueRequestsFromMapFunc(ofContent))
	return setup.Complete(all, "snapshot", r, setup.Options{Workers: 16, Timeout: time.Minute})
}

func (r *Reconciler) ofSource(ctx context.Context, o client.Object) []reconcile.Request {
	return index.Requests(ctx, r.Client, new(vmSnapshotList), o.GetNamespace(), indexSource, o.GetName())
}

func ofContent(_ context.Context, o client.Object) []reconcile.Request {
	name := o.(*vmContent).Spec.VirtualMachineSnapshotName
	if name == nil {
		return nil
	}
	return []reconcile.Request{{NamespacedName: client.ObjectKey{Namespace: o.GetNamespace(), Name: *name}}}
}
