package snapshot

import (
	"context"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/util/workqueue"
	kubevirt "kubevirt.io/api/core/v1"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/controller-runtime/pkg/source"

	"github.com/nodevirt/nodevirt/controller/index"
	"github.com/nodevirt/nodevirt/controller/setup"
)

// indexSource finds snapshots by the name of their VM.
const indexSource = "nodevirt.io/snapshot-source"

func sourceName(o client.Object) []string { return []string{o.(*vmSnapshot).Spec.Source.Name} }

// SetUp lets the manager run the reconciler. The watch of VolumeSnapshots begins when the cluster serves
// them, and may miss changes: the reconciler looks again while it waits for them.
func (r *Reconciler) SetUp(ctx context.Context, m manager.Manager, watch watch) error {
	if err := index.Add(ctx, m, new(vmSnapshot), indexSource, sourceName); err != nil {
		return err
	}
	all := ctrl.NewControllerManagedBy(m).
		For(new(vmSnapshot)).
		Watches(new(kubevirt.VirtualMachine), index.Handler(r.client, new(vmSnapshotList), indexSource, client.Object.GetName)).
		Watches(new(vmContent), handler.EnqueueRequestsFromMapFunc(ofContent)).
		WatchesRawSource(source.Func(func(ctx context.Context, queue workqueue.TypedRateLimitingInterface[reconcile.Request]) error {
			go func() {
				err := watch(ctx, labelSource, func(o metav1.Object) {
					for _, request := range r.ofVolumeSnapshot(ctx, o) {
						queue.Add(request)
					}
				})
				if err != nil {
					m.GetLogger().Error(err, "VolumeSnapshots that change after their snapshot is ready are not noticed")
				}
			}()
			return nil
		}))
	return setup.Complete(all, "snapshot", r, setup.Options{Workers: 16, Timeout: time.Minute})
}

// watch calls changed for each VolumeSnapshot with a label that changes; [volumesnapshot.Client.Watch].
type watch = func(ctx context.Context, label string, changed func(metav1.Object)) error

// ofVolumeSnapshot returns the snapshot whose content owns a VolumeSnapshot.
func (r *Reconciler) ofVolumeSnapshot(ctx context.Context, o metav1.Object) []reconcile.Request {
	owner := metav1.GetControllerOf(o)
	if owner == nil || owner.Kind != kindContent {
		return nil
	}
	content := new(vmContent)
	if err := r.client.Get(ctx, client.ObjectKey{Namespace: o.GetNamespace(), Name: owner.Name}, content); err != nil {
		return nil // it is gone, or its own event follows
	}
	return ofContent(ctx, content)
}

func ofContent(_ context.Context, o client.Object) []reconcile.Request {
	name := o.(*vmContent).Spec.VirtualMachineSnapshotName
	if name == nil {
		return nil
	}
	return []reconcile.Request{{NamespacedName: client.ObjectKey{Namespace: o.GetNamespace(), Name: *name}}}
}
