package vm

import (
	"context"
	"fmt"

	appsv1 "k8s.io/api/apps/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	kubevirt "kubevirt.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/nodevirt/nodevirt/controller/instancetype"
	"github.com/nodevirt/nodevirt/controller/pod"
)

// expander replaces references to types by what these say.
type expander struct {
	client client.Client
	live   client.Reader
	// revisions deletes ControllerRevisions, which no cache has.
	revisions client.Writer
}

// expand writes into a VirtualMachine's template what its instance type and its preference say, and removes the
// references to them, and then the revisions of these names.
func (e *expander) expand(
	ctx context.Context, vm *kubevirt.VirtualMachine, vmi *kubevirt.VirtualMachineInstance, revisions []string,
) error {
	if vm.Spec.Instancetype == nil && vm.Spec.Preference == nil {
		return e.forgetTypes(ctx, vm)
	}
	types, err := instancetype.Find(ctx, e.live, vm)
	if err != nil {
		return err
	}
	before, expanded := vm.DeepCopy(), vm.DeepCopy()
	if err := types.Expand(expanded.Spec.Template); err != nil {
		return err
	}
	expanded.Spec.Instancetype, expanded.Spec.Preference = nil, nil
	if err := e.keepInstance(ctx, vm, expanded, vmi); err != nil {
		return err
	}
	patch := client.MergeFromWithOptions(before, client.MergeFromWithOptimisticLock{})
	if err := e.client.Patch(ctx, expanded, patch); err != nil {
		return client.IgnoreNotFound(fmt.Errorf("expand the instance type and the preference of VM %s: %w", vm.Name, err))
	}
	expanded.DeepCopyInto(vm)
	if err := e.forgetTypes(ctx, vm); err != nil {
		return err
	}
	for _, name := range revisions {
		if err := e.deleteRevision(ctx, vm, name); err != nil {
			return err
		}
	}
	return nil
}

// keepInstance notes on a running instance that is as the VirtualMachine says that it is so, too, once the
// VirtualMachine is expanded.
func (e *expander) keepInstance(
	ctx context.Context, vm, expanded *kubevirt.VirtualMachine, vmi *kubevirt.VirtualMachineInstance,
) error {
	if vmi == nil || vmi.IsFinal() || vmi.DeletionTimestamp != nil || vmi.Annotations[pod.AnnotationTemplate] == "" || changed(vm, vmi) {
		return nil
	}
	whole, err := digest(expanded, vmi)
	if err != nil {
		return err
	}
	fixed, err := fixedDigest(expanded, expanded.Spec.Template, vmi)
	if err != nil {
		return err
	}
	before := vmi.DeepCopy()
	vmi.Annotations[pod.AnnotationTemplate], vmi.Annotations[pod.AnnotationFixed] = whole, fixed
	patch := client.MergeFromWithOptions(before, client.MergeFromWithOptimisticLock{})
	if err := e.client.Patch(ctx, vmi, patch); err != nil {
		return client.IgnoreNotFound(fmt.Errorf("annotate VMI %s: %w", vmi.Name, err))
	}
	return nil
}

// forgetTypes removes the references to revisions from the status of a VirtualMachine without types.
func (e *expander) forgetTypes(ctx context.Context, vm *kubevirt.VirtualMachine) error {
	if vm.Status.InstancetypeRef == nil && vm.Status.PreferenceRef == nil {
		return nil
	}
	status := vm.Status.DeepCopy()
	status.InstancetypeRef, status.PreferenceRef = nil, nil
	return writeStatus(ctx, e.client, vm, *status)
}

// deleteRevision deletes a revision of the VirtualMachine's own.
func (e *expander) deleteRevision(ctx context.Context, vm *kubevirt.VirtualMachine, name string) error {
	revision := new(appsv1.ControllerRevision)
	err := e.live.Get(ctx, client.ObjectKey{Namespace: vm.Namespace, Name: name}, revision)
	if apierrors.IsNotFound(err) || err == nil && !metav1.IsControlledBy(revision, vm) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("read ControllerRevision %s: %w", name, err)
	}
	if err := client.IgnoreNotFound(e.revisions.Delete(ctx, revision)); err != nil {
		return fmt.Errorf("delete ControllerRevision %s: %w", name, err)
	}
	return nil
}
