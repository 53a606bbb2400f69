package snapshot

import (
	"context"
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

// indexSource finds snapshots by the name of their VM.
const indexSource = "nodevirt.io/snapshot-source"

func sourceName(o client.Object) []string { return []string{o.(*vmSnapshot).Spec.Source.Name} }

// SetUp lets the manager run the reconciler. VolumeSnapshots have no watch: the reconciler
// looks again while it waits for them.
func (r *Reconciler) SetUp(ctx context.Context, m manager.Manager) error {
	if err := index.Add(ctx, m, new(vmSnapshot), indexSource, sourceName); err != nil {
		return err
	}
	all := ctrl.NewControllerManagedBy(m).
		For(new(vmSnapshot)).
		Watches(new(kubevirt.VirtualMachine), index.Handler(r.client, new(vmSnapshotList), indexSource, client.Object.GetName)).
		Watches(new(vmContent), handler.EnqueueRequestsFromMapFunc(ofContent))
	return setup.Complete(all, "snapshot", r, setup.Options{Workers: 16, Timeout: time.Minute})
}

func ofContent(_ context.Context, o client.Object) []reconcile.Request {
	name := o.(*vmContent).Spec.VirtualMachineSnapshotName
	if name == nil {
		return nil
	}
	return []reconcile.Request{{NamespacedName: client.ObjectKey{Namespace: o.GetNamespace(), Name: *name}}}
}
