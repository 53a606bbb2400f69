package vm

import (
	"context"
	"fmt"

	"github.com/google/uuid"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	kubevirt "kubevirt.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/nodevirt/nodevirt/controller/admission"
)

// SystemUUID returns the UUID in the SMBIOS of the guests of a VirtualMachine with this UID,
// the same at each start.
func SystemUUID(vm types.UID) types.UID {
	return types.UID(uuid.NewSHA1(uuid.NameSpaceOID, []byte(vm)).String())
}

// setUUID gives the template of a new VirtualMachine a system UUID, as in KubeVirt: a copy
// of the spec that is created elsewhere is the same hardware. A template that is replaced
// by one without a UUID keeps its own.
func setUUID(r *admission.Review, spec admission.Tree) {
	if _, has := spec["template"].(admission.Tree); !has {
		return
	}
	id := uuid.NewString()
	if r.Old != nil {
		id, _, _ = unstructured.NestedString(r.Old, append([]string{"spec"}, pathUUID()...)...)
	}
	if have, _, err := unstructured.NestedString(spec, pathUUID()...); id == "" || have != "" || err != nil {
		return
	}
	_ = unstructured.SetNestedField(spec, id, pathUUID()...) // the read before has followed the path
}

// pathUUID returns the path to the system UUID in a VirtualMachine's spec.
func pathUUID() []string { return []string{"template", "spec", "domain", "firmware", "uuid"} }

// storeUUID writes the system UUID into a template without one, of a VirtualMachine that
// admission has given none. It leaves a template that admission does not accept any more:
// its instances get the same UUID.
func (r *Reconciler) storeUUID(ctx context.Context, vm *kubevirt.VirtualMachine, vmi *kubevirt.VirtualMachineInstance) error {
	if vm.Spec.Template == nil || vm.Status.SnapshotInProgress != nil || vm.Status.RestoreInProgress != nil {
		return nil
	}
	if f := vm.Spec.Template.Spec.Domain.Firmware; f != nil && f.UUID != "" {
		return nil
	}
	next := vm.DeepCopy()
	if next.Spec.Template.Spec.Domain.Firmware == nil {
		next.Spec.Template.Spec.Domain.Firmware = new(kubevirt.Firmware)
	}
	next.Spec.Template.Spec.Domain.Firmware.UUID = SystemUUID(vm.UID)
	if vmi != nil && !vmi.IsFinal() && outdated(next, nil, vmi) && !outdated(vm, nil, vmi) {
		return nil // a restart would be asked for
	}
	patch := client.MergeFromWithOptions(vm, client.MergeFromWithOptimisticLock{})
	switch err := r.client.Patch(ctx, next, patch); {
	case apierrors.IsInvalid(err), apierrors.IsForbidden(err):
		return nil
	case err != nil:
		return fmt.Errorf("store the system UUID of VM %s: %w", vm.Name, err)
	}
	*vm = *next
	return nil
}

// dropUUID removes the UUID that storeUUID writes from a template's spec.
func dropUUID(vm *kubevirt.VirtualMachine, spec *kubevirt.VirtualMachineInstanceSpec) {
	f := spec.Domain.Firmware
	if f == nil || f.UUID != SystemUUID(vm.UID) {
		return
	}
	left := *f // the spec may share it
	left.UUID, spec.Domain.Firmware = "", &left
	if left == (kubevirt.Firmware{}) {
		spec.Domain.Firmware = nil
	}
}
