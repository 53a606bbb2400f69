package vm

import (
	"context"
	"errors"
	"fmt"

	"k8s.io/apimachinery/pkg/api/equality"
	kubevirt "kubevirt.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/nodevirt/nodevirt/controller/instancetype"
)

// keepTypes creates revisions of a VirtualMachine's instance type and preference, and
// records their names before an instance is created. With another policy it writes into the
// VirtualMachine what they say, and revisions are not needed.
func (r *Reconciler) keepTypes(
	ctx context.Context, vm *kubevirt.VirtualMachine, vmi *kubevirt.VirtualMachineInstance, policy kubevirt.InstancetypeReferencePolicy,
) error {
	if vm.Spec.Template == nil { // template reports it
		return nil
	}
	revisions := instancetype.Revisions(vm)
	if policy == kubevirt.ExpandAll || policy == kubevirt.Expand && len(revisions) == 0 {
		return r.expander.expand(ctx, vm, vmi, revisions)
	}
	status, err := instancetype.Keep(ctx, r.live, r.revisions, vm)
	if err != nil {
		return err
	}
	old, err := instancetype.Upgrade(ctx, r.live, r.revisions, vm, status)
	if err != nil || equality.Semantic.DeepEqual(*status, vm.Status) {
		return err
	}
	if err := writeStatus(ctx, r.client, vm, *status); err != nil {
		return err
	}
	for _, o := range old {
		if err := client.IgnoreNotFound(r.revisions.Delete(ctx, o)); err != nil {
			return fmt.Errorf("delete ControllerRevision %s: %w", o.Name, err)
		}
	}
	return nil
}

// template returns a VirtualMachine's template with what its instance type and its
// preference add.
func (r *Reconciler) template(
	ctx context.Context, vm *kubevirt.VirtualMachine,
) (*kubevirt.VirtualMachineInstanceTemplateSpec, error) {
	if vm.Spec.Template == nil {
		return nil, fmt.Errorf("spec.template: required")
	}
	types, err := instancetype.Find(ctx, r.live, vm)
	if err != nil {
		return nil, err
	}
	template := vm.Spec.Template.DeepCopy()
	return template, types.Expand(template)
}

// templateOf is [Reconciler.template] for an instance that differs from its VirtualMachine; nil for
// another one.
func (r *Reconciler) templateOf(
	ctx context.Context, vm *kubevirt.VirtualMachine, vmi *kubevirt.VirtualMachineInstance,
) (*kubevirt.VirtualMachineInstanceTemplateSpec, error) {
	if vmi == nil || vmi.IsFinal() || vmi.DeletionTimestamp != nil || !changed(vm, vmi) {
		return nil, nil
	}
	return r.template(ctx, vm)
}

// changes reports whether only the change of a watched object can end a failure, so
// that a retry is useless.
func changes(failure error) bool {
	var conflicts *instancetype.ConflictError
	m := missing(failure)
	return m != nil && !m.Revision || errors.As(failure, &conflicts) || errors.Is(failure, errNeedsCDI) || isSourceError(failure)
}

// missing returns the error of an object that does not exist yet; nil for another
// failure.
func missing(failure error) *instancetype.MissingError {
	var m *instancetype.MissingError
	errors.As(failure, &m)
	return m
}

// whoWants returns the VirtualMachines that wait for an instance type or a preference.
func (r *Reconciler) whoWants(ctx context.Context, object client.Object) []reconcile.Request {
	var all kubevirt.VirtualMachineList
	err := r.client.List(ctx, &all, client.InNamespace(object.GetNamespace()), client.UnsafeDisableDeepCopy)
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
