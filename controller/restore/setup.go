package restore

import (
	"context"
	"time"

	kubevirt "kubevirt.io/api/core/v1"
	api "kubevirt.io/api/snapshot/v1beta1"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/manager"

	"github.com/nodevirt/nodevirt/controller/index"
	"github.com/nodevirt/nodevirt/controller/setup"
)

// indexTarget finds restores by the name of their VM.
const indexTarget = "nodevirt.io/restore-target"

func targetName(o client.Object) []string {
	return []string{o.(*api.VirtualMachineRestore).Spec.Target.Name}
}

// SetUp lets the manager run the reconciler. It looks again while it waits for PVCs.
func (r *Reconciler) SetUp(ctx context.Context, m manager.Manager) error {
	if err := index.Add(ctx, m, new(api.VirtualMachineRestore), indexTarget, targetName); err != nil {
		return err
	}
	ofVM := index.Handler(r.client, new(api.VirtualMachineRestoreList), indexTarget, client.Object.GetName)
	all := ctrl.NewControllerManagedBy(m).
		For(new(api.VirtualMachineRestore)).
		Watches(new(kubevirt.VirtualMachine), ofVM).
		Watches(new(kubevirt.VirtualMachineInstance), ofVM)
	return setup.Complete(all, "restore", r, setup.Options{Workers: 8, Timeout: time.Minute})
}
