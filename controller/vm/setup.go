package vm

import (
	"context"
	"time"

	corev1 "k8s.io/api/core/v1"
	kubevirt "kubevirt.io/api/core/v1"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/nodevirt/nodevirt/controller/index"
	"github.com/nodevirt/nodevirt/controller/instancetype"
	"github.com/nodevirt/nodevirt/controller/setup"
)

// SetUp lets the manager run the reconciler.
func (r *Reconciler) SetUp(ctx context.Context, m manager.Manager) error {
	if err := index.Add(ctx, m, new(kubevirt.VirtualMachine), index.PVC, pvcNames); err != nil {
		return err
	}
	all := ctrl.NewControllerManagedBy(m).
		For(new(kubevirt.VirtualMachine)).
		Watches(new(kubevirt.VirtualMachineInstance), handler.EnqueueRequestsFromMapFunc(sameName)).
		Watches(new(corev1.PersistentVolumeClaim), index.Handler(r.client, new(kubevirt.VirtualMachineList), index.PVC, client.Object.GetName))
	for _, kind := range instancetype.Kinds() {
		all.WatchesMetadata(kind, handler.EnqueueRequestsFromMapFunc(r.whoWants))
	}
	return setup.Complete(all, "vm", r, setup.Options{Workers: 8, Timeout: 30 * time.Second})
}

// sameName is the VirtualMachine that an instance belongs to, or could.
func sameName(_ context.Context, o client.Object) []reconcile.Request {
	return []reconcile.Request{{NamespacedName: client.ObjectKeyFromObject(o)}}
}
