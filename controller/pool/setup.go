package pool

import (
	"context"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	kubevirt "kubevirt.io/api/core/v1"
	api "kubevirt.io/api/pool/v1beta1"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/nodevirt/nodevirt/controller/index"
	"github.com/nodevirt/nodevirt/controller/setup"
)

// SetUp lets the manager run the reconciler. The events of VMs are enough: a VM's
// status changes with its instance.
func (r *Reconciler) SetUp(ctx context.Context, m manager.Manager) error {
	if err := index.Add(ctx, m, new(kubevirt.VirtualMachine), index.Owner, index.OwnerOf(api.VirtualMachinePoolKind)); err != nil {
		return err
	}
	all := ctrl.NewControllerManagedBy(m).
		For(new(api.VirtualMachinePool)).
		Watches(new(kubevirt.VirtualMachine), handler.EnqueueRequestsFromMapFunc(poolOf))
	return setup.Complete(all, "pool", r, setup.Options{Workers: 4, Timeout: time.Minute})
}

// poolOf returns the pool that owns a VM. A VM that is released has an event with its
// former owner, too.
func poolOf(_ context.Context, o client.Object) []reconcile.Request {
	owner := metav1.GetControllerOf(o)
	if owner == nil || owner.Kind != api.VirtualMachinePoolKind {
		return nil
	}
	return []reconcile.Request{{NamespacedName: client.ObjectKey{Namespace: o.GetNamespace(), Name: owner.Name}}}
}
