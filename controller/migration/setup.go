package migration

import (
	"context"
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
	"github.com/nodevirt/nodevirt/controller/pod"
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
		if err := index.Add(ctx, m, new(migration), name, key); err != nil {
			return err
		}
	}
	of := func(value func(client.Object) string) handler.EventHandler {
		return index.Handler(r.client, new(kubevirt.VirtualMachineInstanceMigrationList), indexInstance, value)
	}
	all := ctrl.NewControllerManagedBy(m).
		For(new(migration)).
		Watches(new(migration), handler.EnqueueRequestsFromMapFunc(r.waiting)).
		Watches(new(kubevirt.KubeVirt), handler.EnqueueRequestsFromMapFunc(r.pending)). // there may be more places
		Watches(new(kubevirt.VirtualMachineInstance), of(client.Object.GetName)).
		Watches(new(corev1.Pod), of(instanceOf))
	return setup.Complete(all, "migration", r, setup.Options{Workers: 16, Timeout: 90 * time.Second})
}

// waiting returns the migrations that may begin once another one has ended.
func (r *Reconciler) waiting(ctx context.Context, o client.Object) []reconcile.Request {
	if m := o.(*migration); !m.IsFinal() && m.DeletionTimestamp == nil {
		return nil
	}
	return r.pending(ctx, o)
}

// pending returns the migrations that wait for a place.
func (r *Reconciler) pending(ctx context.Context, _ client.Object) []reconcile.Request {
	var list kubevirt.VirtualMachineInstanceMigrationList
	err := r.client.List(ctx, &list, client.MatchingFields{indexUnfinished: unfinished},
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

// instanceOf returns the name of the instance that owns a pod, or that an attachment pod is for; "" for none.
func instanceOf(o client.Object) string {
	if p, is := o.(*corev1.Pod); is {
		if name, _, is := pod.AttachedTo(p); is {
			return name
		}
	}
	owner := metav1.GetControllerOf(o)
	if owner == nil || owner.Kind != kubevirt.VirtualMachineInstanceGroupVersionKind.Kind {
		return ""
	}
	return owner.Name
}
