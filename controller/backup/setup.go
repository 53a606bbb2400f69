package backup

import (
	"context"
	"time"

	kubevirt "kubevirt.io/api/core/v1"
	exportapi "kubevirt.io/api/export/v1"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/nodevirt/nodevirt/controller/index"
	"github.com/nodevirt/nodevirt/controller/setup"
)

// indexSource finds backups by their sources: KIND/NAME.
const indexSource = "nodevirt.io/backup-source"

func sourceOf(o client.Object) []string {
	source := o.(*vmBackup).Spec.Source
	return []string{source.Kind + "/" + source.Name}
}

// SetUp lets the manager run the reconciler. A backup of a tracker, which waits for its VM, looks
// again by itself.
func (r *Reconciler) SetUp(ctx context.Context, m manager.Manager) error {
	if err := index.Add(ctx, m, new(vmBackup), indexSource, sourceOf); err != nil {
		return err
	}
	of := func(kind string) handler.EventHandler {
		return index.Handler(r.Client, new(vmBackupList), indexSource, func(o client.Object) string { return kind + "/" + o.GetName() })
	}
	all := ctrl.NewControllerManagedBy(m).
		For(new(vmBackup)).
		Owns(new(exportapi.VirtualMachineExport)).
		Watches(new(tracker), of(kindTracker)).
		Watches(new(instance), of(kindVM))
	return setup.Complete(all, "backup", r, setup.Options{Workers: 8, Timeout: time.Minute})
}

// SetUp lets the manager run the reconciler, for all VMs if the configuration changes.
func (t *Tracking) SetUp(m manager.Manager) error {
	everything := handler.EnqueueRequestsFromMapFunc(func(ctx context.Context, _ client.Object) []reconcile.Request {
		all := new(kubevirt.VirtualMachineList)
		if err := t.Client.List(ctx, all, client.UnsafeDisableDeepCopy); err != nil {
			return nil
		}
		var requests []reconcile.Request
		for i := range all.Items {
			requests = append(requests, reconcile.Request{NamespacedName: client.ObjectKeyFromObject(&all.Items[i])})
		}
		return requests
	})
	all := ctrl.NewControllerManagedBy(m).
		For(new(kubevirt.VirtualMachine)).
		Watches(new(instance), new(handler.EnqueueRequestForObject)).
		Watches(new(kubevirt.KubeVirt), everything)
	return setup.Complete(all, "block-tracking", t, setup.Options{Workers: 4, Timeout: time.Minute})
}
