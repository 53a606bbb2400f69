package backup

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/labels"
	kubevirt "kubevirt.io/api/core/v1"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/nodevirt/nodevirt/controller/config"
)

// Tracking says in the statuses of VMs and their instances whether their changed blocks are tracked:
// the configuration selects the VMs. A node can track the blocks of each running VM, so that none
// has to restart.
type Tracking struct {
	Client client.Client
	// Live reads from the API server: no cache has namespaces.
	Live   client.Reader
	Config config.Source
}

// Reconcile writes the state for the VM of a name.
func (t *Tracking) Reconcile(ctx context.Context, req ctrl.Request) (ctrl.Result, error) {
	vm := new(kubevirt.VirtualMachine)
	if err := t.Client.Get(ctx, req.NamespacedName, vm); err != nil {
		return ctrl.Result{}, client.IgnoreNotFound(err)
	}
	vmi := new(instance)
	if err := t.Client.Get(ctx, req.NamespacedName, vmi); apierrors.IsNotFound(err) {
		vmi = nil
	} else if err != nil {
		return ctrl.Result{}, err
	}
	tracked, err := t.tracked(ctx, vm)
	if err != nil {
		return ctrl.Result{}, err
	}
	if vmi != nil {
		if err := t.write(ctx, vmi, &vmi.Status.ChangedBlockTracking, next(state(vmi.Status.ChangedBlockTracking), tracked, vmi)); err != nil {
			return ctrl.Result{}, err
		}
	}
	return ctrl.Result{}, t.write(ctx, vm, &vm.Status.ChangedBlockTracking, next(state(vm.Status.ChangedBlockTracking), tracked, vmi))
}

// tracked reports whether the configuration selects a VM.
func (t *Tracking) tracked(ctx context.Context, vm *kubevirt.VirtualMachine) (bool, error) {
	c, err := t.Config.Read(ctx)
	if err != nil {
		return false, err
	}
	byVM, byNamespace := c.BlockTracking()
	if byVM != nil && byVM.Matches(labels.Set(vm.Labels)) {
		return true, nil
	}
	if byNamespace == nil {
		return false, nil
	}
	namespace := new(corev1.Namespace)
	if err := t.Live.Get(ctx, client.ObjectKey{Name: vm.Namespace}, namespace); err != nil {
		return false, fmt.Errorf("read the labels of namespace %s: %w", vm.Namespace, err)
	}
	return byNamespace.Matches(labels.Set(namespace.Labels)), nil
}

func state(s *kubevirt.ChangedBlockTrackingStatus) kubevirt.ChangedBlockTrackingState {
	if s == nil {
		return kubevirt.ChangedBlockTrackingUndefined
	}
	return s.State
}

// next returns the state of a VM or its instance, which may be nil.
func next(was kubevirt.ChangedBlockTrackingState, tracked bool, vmi *instance) kubevirt.ChangedBlockTrackingState {
	switch {
	case !tracked && was == kubevirt.ChangedBlockTrackingUndefined:
		return was
	case !tracked:
		return kubevirt.ChangedBlockTrackingDisabled
	case vmi != nil && vmi.Status.Phase == kubevirt.Running, was == kubevirt.ChangedBlockTrackingEnabled:
		return kubevirt.ChangedBlockTrackingEnabled
	}
	return kubevirt.ChangedBlockTrackingInitializing
}

// write writes an object's state, if it is another one. The status is a part of the object.
func (t *Tracking) write(
	ctx context.Context, o client.Object, status **kubevirt.ChangedBlockTrackingStatus, now kubevirt.ChangedBlockTrackingState,
) error {
	if state(*status) == now {
		return nil
	}
	patch := client.MergeFrom(o.DeepCopyObject().(client.Object))
	if *status == nil {
		*status = new(kubevirt.ChangedBlockTrackingStatus)
	}
	(*status).State = now
	if err := t.Client.Status().Patch(ctx, o, patch); err != nil {
		return client.IgnoreNotFound(fmt.Errorf("write the state of block tracking of %s/%s: %w", o.GetNamespace(), o.GetName(), err))
	}
	return nil
}
