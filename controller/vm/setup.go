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
		Watches(new(kubevirt.VirtualMachine), setup.Urgent(requested)).
		Watches(new(kubevirt.VirtualMachineInstance), setup.Urgent(ended)).
		Watches(new(corev1.PersistentVolumeClaim), index.Handler(r.client, new(kubevirt.VirtualMachineList), index.PVC, client.Object.GetName))
	for _, kind := range instancetype.Kinds() {
		all.WatchesMetadata(kind, handler.EnqueueRequestsFromMapFunc(r.whoWants))
	}
	return setup.Complete(all, "vm", r, setup.Options{Workers: 8, Timeout: 30 * time.Second})
}

// requested reports whether the status of a VirtualMachine does not have the last request of its users yet: that
// the VirtualMachine starts, stops or changes. A status of one that runs can wait.
func requested(o client.Object) bool {
	vm := o.(*kubevirt.VirtualMachine)
	return vm.Generation != vm.Status.DesiredGeneration || len(vm.Status.StateChangeRequests) > 0 || vm.DeletionTimestamp != nil
}

// ended reports whether an instance has ended: its VirtualMachine may start again. The VirtualMachine of an
// instance has its name.
func ended(o client.Object) bool { return o.(*kubevirt.VirtualMachineInstance).IsFinal() }
