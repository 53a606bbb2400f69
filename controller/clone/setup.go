package clone

import (
	"context"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	kubevirt "kubevirt.io/api/core/v1"
	snapshotapi "kubevirt.io/api/snapshot/v1beta1"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/manager"

	"github.com/nodevirt/nodevirt/controller/index"
	"github.com/nodevirt/nodevirt/controller/setup"
)

// indexOf finds clones by what they are made of, and by the VM that they make: KIND/NAME.
const indexOf = "nodevirt.io/clone-of"

func related(o client.Object) []string {
	c := o.(*vmClone)
	all := []string{kindVM + "/" + targetName(c)}
	if c.Spec.Source != nil {
		all = append(all, c.Spec.Source.Kind+"/"+c.Spec.Source.Name)
	}
	return all
}

// SetUp lets the manager run the reconciler.
func (r *Reconciler) SetUp(ctx context.Context, m manager.Manager) error {
	if err := index.Add(ctx, m, new(vmClone), indexOf, related); err != nil {
		return err
	}
	of := func(value func(client.Object) string) handler.EventHandler {
		return index.Handler(r.Client, new(vmCloneList), indexOf, value)
	}
	all := ctrl.NewControllerManagedBy(m).
		For(new(vmClone)).
		Owns(new(snapshotapi.VirtualMachineSnapshot)).
		Owns(new(snapshotapi.VirtualMachineRestore)).
		Watches(new(kubevirt.VirtualMachine), of(vmOf)).
		Watches(new(snapshotapi.VirtualMachineSnapshot), of(snapshotOf)).
		Watches(new(corev1.PersistentVolumeClaim), of(ownerOf))
	return setup.Complete(all, "clone", r, setup.Options{Workers: 8, Timeout: time.Minute})
}

// vmOf returns the value of a VM in the index.
func vmOf(o client.Object) string { return kindVM + "/" + o.GetName() }

// snapshotOf returns the value of a snapshot in the index.
func snapshotOf(o client.Object) string { return kindSnapshot + "/" + o.GetName() }

// ownerOf returns the value of the VM that owns a PVC; "" for none.
func ownerOf(o client.Object) string {
	owner := metav1.GetControllerOf(o)
	if owner == nil || owner.Kind != kindVM {
		return ""
	}
	return kindVM + "/" + owner.Name
}
