package restore

import (
	"context"
	"fmt"
	"time"

	kubevirt "kubevirt.io/api/core/v1"
	api "kubevirt.io/api/snapshot/v1beta1"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/nodevirt/nodevirt/controller/index"
	"github.com/nodevirt/nodevirt/controller/setup"
)

const (
	// indexTarget finds restores by the name of their VM.
	indexTarget = "nodevirt.io/restore-target"
)

func targetName(o client.Object) []string {
	return []string{o.(*api.VirtualMachineRestore).Spec.Target.Name}
}

// SetUp lets the manager run the reconciler. It looks again while it waits for PVCs.
func (r *Reconciler) SetUp(ctx context.Context, m manager.Manager) error {
	if err := m.GetFieldIndexer().IndexField(ctx, new(api.VirtualMachineRestore), indexTarget, targetName); err != nil {
		return fmt.Errorf("index restores by %s: %w", indexTarget, err)
	}
	ofVM := handler.EnqueueRequestsFromMapFunc(func(ctx context.Context, o client.Object) []reconcile.Request {
		return index.Requests(ctx, r.Client, new(api.VirtualMachineRestoreList), o.GetNamespace(), indexTarget, o.GetName())
	})
	all := ctrl.NewControllerManagedBy(m).
		For(new(api.VirtualMachineRestore)).
		Watches(new(kubevirt.VirtualMachine), ofVM).
		Watches(new(kubevirt.VirtualMachineInstance), ofVM)
	return setup.Complete(all, "restore", r, setup.Options{Workers: 8, Timeout: time.Minute})
}
