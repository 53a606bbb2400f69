package export

import (
	"context"
	"time"

	corev1 "k8s.io/api/core/v1"
	backupapi "kubevirt.io/api/backup/v1alpha1"
	kubevirt "kubevirt.io/api/core/v1"
	snapshotapi "kubevirt.io/api/snapshot/v1beta1"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/manager"

	"github.com/nodevirt/nodevirt/controller/index"
	"github.com/nodevirt/nodevirt/controller/setup"
)

// indexSource finds exports by their source: KIND/NAME.
const indexSource = "nodevirt.io/export-source"

func sourceOf(o client.Object) []string {
	of := o.(*vmExport).Spec.Source
	return []string{of.Kind + "/" + of.Name}
}

// SetUp lets the manager run the reconciler. The indexes of VMs and instances by their PVCs exist.
func (r *Reconciler) SetUp(ctx context.Context, m manager.Manager) error {
	if err := index.Add(ctx, m, new(vmExport), indexSource, sourceOf); err != nil {
		return err
	}
	all := ctrl.NewControllerManagedBy(m).
		For(new(vmExport)).
		Owns(new(corev1.Pod)).
		Owns(new(corev1.PersistentVolumeClaim)).
		Watches(new(corev1.PersistentVolumeClaim), r.of(kindPVC)).
		Watches(new(kubevirt.VirtualMachine), r.of(kindVM)).
		Watches(new(kubevirt.VirtualMachineInstance), r.of(kindVM)).
		Watches(new(snapshotapi.VirtualMachineSnapshot), r.of(kindSnapshot)).
		Watches(new(backupapi.VirtualMachineBackup), r.of(kindBackup))
	return setup.Complete(all, "export", r, setup.Options{Workers: 8, Timeout: time.Minute})
}

// of returns the exports of an object. An instance has the name of its VM.
func (r *Reconciler) of(kind string) handler.EventHandler {
	return index.Handler(r.client, new(vmExportList), indexSource, func(o client.Object) string { return kind + "/" + o.GetName() })
}
