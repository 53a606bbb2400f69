package restore

import (
	"context"
	"fmt"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/validation/field"
	kubevirt "kubevirt.io/api/core/v1"
	api "kubevirt.io/api/snapshot/v1beta1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/nodevirt/nodevirt/controller/admission"
	"github.com/nodevirt/nodevirt/controller/pages"
)

// finalizer is KubeVirt's: a restore that is deleted unlocks its VM first.
const finalizer = "snapshot.kubevirt.io/vmrestore-protection"

func rules() admission.Rules {
	return admission.Rules{
		Finalizer:   finalizer,
		Check:       admission.CheckSpec("name the VM and the snapshot", CheckManifest),
		CheckUpdate: admission.SameSpec("spec is immutable after creation"),
		CheckTypes:  checkOthers,
	}
}

// checkOthers refuses a new restore of a VM that is being restored, and one whose target is another VM than that of the
// snapshot. A snapshot that does not exist yet refuses nothing: its restore waits.
func checkOthers(ctx context.Context, live client.Reader, r *admission.Review) (field.ErrorList, error) {
	spec, problems := CheckManifest(field.NewPath("spec"), r.Object["spec"])
	if r.Old != nil || spec == nil {
		return problems, nil
	}
	var problem field.ErrorList
	empty := func() *api.VirtualMachineRestoreList { return new(api.VirtualMachineRestoreList) }
	err := pages.Each(ctx, live, r.Meta.Namespace, empty, func(page *api.VirtualMachineRestoreList) (bool, error) {
		for i := range page.Items {
			if other := &page.Items[i]; other.Spec.Target.Name == spec.Target.Name && !ended(other) {
				problem = field.ErrorList{field.Forbidden(field.NewPath("spec", "target"),
					fmt.Sprintf("VirtualMachineRestore %q in progress", other.Name))}
				return true, nil
			}
		}
		return false, nil
	})
	if err != nil {
		return nil, fmt.Errorf("list restores in %s: %w", r.Meta.Namespace, err)
	}
	if problem != nil {
		return problem, nil
	}
	return checkTarget(ctx, live, r.Meta.Namespace, spec)
}

// checkTarget refuses a target that is another VM, and a restore in place that would take the PVCs of another VM.
func checkTarget(ctx context.Context, live client.Reader, namespace string, spec *api.VirtualMachineRestoreSpec) (field.ErrorList, error) {
	s := new(api.VirtualMachineSnapshot)
	key := client.ObjectKey{Namespace: namespace, Name: spec.VirtualMachineSnapshotName}
	if err := live.Get(ctx, key, s); err != nil {
		return nil, client.IgnoreNotFound(err)
	}
	if s.Status == nil || s.Status.SourceUID == nil {
		return nil, nil
	}
	uidOf := func(name string) (types.UID, error) {
		vm := new(kubevirt.VirtualMachine)
		err := live.Get(ctx, client.ObjectKey{Namespace: namespace, Name: name}, vm)
		return vm.UID, client.IgnoreNotFound(err)
	}
	at := field.NewPath("spec", "target", "name")
	uid, err := uidOf(spec.Target.Name)
	if err != nil {
		return nil, fmt.Errorf("read VM %s/%s: %w", namespace, spec.Target.Name, err)
	}
	if uid != "" && uid != *s.Status.SourceUID {
		return field.ErrorList{field.Forbidden(at,
			fmt.Sprintf("VM %s exists and is not the one that snapshot %s is of: name a new VM", spec.Target.Name, s.Name))}, nil
	}
	if uid != "" || spec.VolumeRestorePolicy == nil || *spec.VolumeRestorePolicy != api.VolumeRestorePolicyInPlace ||
		spec.Target.Name == s.Spec.Source.Name {
		return nil, nil
	}
	if uid, err = uidOf(s.Spec.Source.Name); err != nil || uid != *s.Status.SourceUID {
		return nil, err
	}
	return field.ErrorList{field.Forbidden(at, fmt.Sprintf(
		"volumeRestorePolicy InPlace would replace the PVCs of VM %s, which exists: choose another policy for a new VM", s.Spec.Source.Name))}, nil
}
