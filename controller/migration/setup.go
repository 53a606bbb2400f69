package migration

import (
	"context"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
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
	// indexInstance finds migrations by the name of their instance.
	indexInstance = "nodevirt.io/migrated-instance"
	// indexUnfinished finds the migrations that have not ended, by the value below.
	indexUnfinished = "nodevirt.io/unfinished"
	unfinished      = "true"
)

// indexes returns the indexes of migrations by their names.
func indexes() map[string]client.IndexerFunc {
	return map[string]client.IndexerFunc{
		indexInstance: func(o client.Object) []string { return []string{o.(*migration).Spec.VMIName} },
		indexUnfinished: func(o client.Object) []string {
			if o.(*migration).IsFinal() {
				return nil
			}
			return []string{unfinished}
		},
	}
}

// SetUp lets the manager run the reconciler. A reconciliation gives both nodes five orders
// at most.
func (r *Reconciler) SetUp(ctx context.Context, m manager.Manager) error {
	for name, key := range indexes() {
		if err := m.GetFieldIndexer().IndexField(ctx, new(migration), name, key); err != nil {
			return fmt.Errorf("index migrations by %s: %w", name, err)
		}
	}
	all := ctrl.NewControllerManagedBy(m).
		For(new(migration)).
		Watches(new(migration), handler.EnqueueRequestsFromMapFunc(r.waiting)).
		Watches(new(kubevirt.VirtualMachineInstance), handler.EnqueueRequestsFromMapFunc(r.ofInstance)).
		Watches(new(corev1.Pod), handler.EnqueueRequestsFromMapFunc(r.ofPod))
	return setup.Complete(all, "migration", r, setup.Options{Workers: 16, Timeout: 90 * time.Second})
}

// waiting returns the migrations that may begin once another one has ended.
func (r *Reconciler) waiting(ctx context.Context, o client.Object) []reconcile.Request {
	if m := o.(*migration); !m.IsFinal() && m.DeletionTimestamp == nil {
		return nil
	}
	var list kubevirt.VirtualMachineInstanceMigrationList
	err := r.Client.List(ctx, &list, client.MatchingFields{indexUnfinished: unfinished},
		client.DisableReadYourWritesConsistency, client.UnsafeDisableDeepCopy)
	if err != nil {
		return nil // the cache is being stopped
	}
	var all []reconcile.Request
	for i := range list.Items {
		if m := &list.Items[i]; isPending(m) {
			all = append(all, reconcile.Request{NamespacedName: client.ObjectKeyFromObject(m)})
		}
	}
	return all
}

func (r *Reconciler) ofInstance(ctx context.Context, o client.Object) []reconcile.Request {
	return r.ofName(ctx, o.GetNamespace(), o.GetName())
}

func (r *Reconciler) ofPod(ctx context.Context, o client.Object) []reconcile.Request {
	owner := metav1.GetControllerOf(o)
	if owner == nil || owner.Kind != kubevirt.VirtualMachineInstanceGroupVersionKind.Kind {
		return nil
	}
	return r.ofName(ctx, o.GetNamespace(), owner.Name)
}

func (r *Reconciler) ofName(ctx context.Context, namespace, vmi string) []reconcile.Request {
	return index.Requests(ctx, r.Client, new(kubevirt.VirtualMachineInstanceMigrationList), namespace, indexInstance, vmi)
}
