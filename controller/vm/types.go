package vm

import (
	"context"
	"errors"
	"fmt"

	"k8s.io/apimachinery/pkg/api/equality"
	utilerrors "k8s.io/apimachinery/pkg/util/errors"
	"k8s.io/apimachinery/pkg/util/validation/field"
	kubevirt "kubevirt.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/nodevirt/nodevirt/controller/instancetype"
)

// keepTypes keeps revisions of a VirtualMachine's instance type and preference, and
// writes down which, before anything is made of them.
func (r *Reconciler) keepTypes(ctx context.Context, vm *kubevirt.VirtualMachine) error {
	if vm.Spec.Template == nil { // told where one is needed
		return nil
	}
	status, err := instancetype.Keep(ctx, r.Live, r.Revisions, vm)
	if err != nil || equality.Semantic.DeepEqual(*status, vm.Status) {
		return err
	}
	before := vm.DeepCopy()
	vm.Status = *status
	patch := client.MergeFromWithOptions(before, client.MergeFromWithOptimisticLock{})
	if err := r.Client.Status().Patch(ctx, vm, patch); err != nil {
		return fmt.Errorf("write status of VM %s/%s: %w", vm.Namespace, vm.Name, err)
	}
	return nil
}

// template is a VirtualMachine's, with what its instance type and preference say.
func (r *Reconciler) template(
	ctx context.Context, vm *kubevirt.VirtualMachine,
) (*kubevirt.VirtualMachineInstanceTemplateSpec, error) {
	if vm.Spec.Template == nil {
		return nil, fmt.Errorf("spec.template: required")
	}
	types, err := instancetype.Find(ctx, r.Live, vm)
	if err != nil {
		return nil, err
	}
	template := vm.Spec.Template.DeepCopy()
	return template, types.Apply(field.NewPath("spec", "template"), template).ToAggregate()
}

// changes tells whether a failure goes only with a change of an object that is
// watched, so that to try again by itself is of no use.
func changes(failure error) bool {
	var conflicts utilerrors.Aggregate
	m := missing(failure)
	return m != nil && !m.Revision || errors.As(failure, &conflicts)
}

// missing is what there is not yet; nil for nothing.
func missing(failure error) *instancetype.MissingError {
	var m *instancetype.MissingError
	errors.As(failure, &m)
	return m
}

// whoWants are the VirtualMachines that wait for an instance type or a preference.
func (r *Reconciler) whoWants(ctx context.Context, object client.Object) []reconcile.Request {
	var all kubevirt.VirtualMachineList
	err := r.Client.List(ctx, &all, client.InNamespace(object.GetNamespace()), client.UnsafeDisableDeepCopy)
	if err != nil { // from the cache: it is being stopped
		return nil
	}
	var requests []reconcile.Request
	for i := range all.Items {
		if instancetype.Wants(&all.Items[i], object) {
			requests = append(requests, reconcile.Request{NamespacedName: client.ObjectKeyFromObject(&all.Items[i])})
		}
	}
	return requests
}
