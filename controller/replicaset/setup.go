package replicaset

import (
	"context"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	kubevirt "kubevirt.io/api/core/v1"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/nodevirt/nodevirt/controller/index"
	"github.com/nodevirt/nodevirt/controller/setup"
)

// SetUp lets the manager run the reconciler.
func (r *Reconciler) SetUp(ctx context.Context, m manager.Manager) error {
	if err := index.Add(ctx, m, new(instance), index.Owner, index.OwnerOf(kubevirt.VirtualMachineInstanceReplicaSetGroupVersionKind.Kind)); err != nil {
		return err
	}
	all := ctrl.NewControllerManagedBy(m).
		For(new(replicaSet)).
		Watches(new(instance), handler.EnqueueRequestsFromMapFunc(r.setsOf))
	return setup.Complete(all, "replicaset", r, setup.Options{Workers: 4, Timeout: time.Minute})
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
	err := r.Client.List(ctx, &sets, client.InNamespace(o.GetNamespace()),
		client.DisableReadYourWritesConsistency, client.UnsafeDisableDeepCopy)
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
