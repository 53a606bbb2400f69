package clone

import (
	"context"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	kubevirt "kubevirt.io/api/core/v1"
	snapshotapi "kubevirt.io/api/snapshot/v1beta1"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/nodevirt/nodevirt/controller/index"
	"github.com/nodevirt/nodevirt/controller/setup"
)

const (
	// indexOf finds clones by what they are made of, and by the VM that they make: KIND/NAME.
	indexOf = "nodevirt.io/clone-of"
)

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
	if err := m.GetFieldIndexer().IndexField(ctx, new(vmClone), indexOf, related); err != nil {
		return fmt.Errorf("index clones by %s: %w", indexOf, err)
	}
	all := ctrl.NewControllerManagedBy(m).
		For(new(vmClone)).
		Owns(new(snapshotapi.VirtualMachineSnapshot)).
		Owns(new(snapshotapi.VirtualMachineRestore)).
		Watches(new(kubevirt.VirtualMachine), r.of(kindVM)).
		Watches(new(snapshotapi.VirtualMachineSnapshot), r.of(kindSnapshot)).
		Watches(new(corev1.PersistentVolumeClaim), handler.EnqueueRequestsFromMapFunc(r.ofPVC))
	return setup.Complete(all, "clone", r, setup.Options{Workers: 8, Timeout: time.Minute})
}

// of returns the clones that an object of a kind belongs to.
func (r *Reconciler) of(kind string) handler.EventHandler {
	return handler.EnqueueRequestsFromMapFunc(func(ctx context.Context, o client.Object) []reconcile.Request {
		return index.Requests(ctx, r.Client, new(vmCloneList), o.GetNamespace(), indexOf, kind+"/"+o.GetName())
	})
}

// ofPVC returns the clones whose VM owns a PVC.
func (r *Reconciler) ofPVC(ctx context.Context, o client.Object) []reconcile.Request {
	owner := metav1.GetControllerOf(o)
	if owner == nil || owner.Kind != kindVM {
		return nil
	}
	return index.Requests(ctx, r.Client, new(vmCloneList), o.GetNamespace(), indexOf, kindVM+"/"+owner.Name)
}
