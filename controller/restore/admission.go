package restore

import (
	"context"
	"fmt"

	"k8s.io/apimachinery/pkg/util/validation/field"
	api "kubevirt.io/api/snapshot/v1beta1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/nodevirt/nodevirt/controller/admission"
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

// checkOthers refuses a new restore of a VM that is being restored.
func checkOthers(ctx context.Context, live client.Reader, r *admission.Review) (field.ErrorList, error) {
	spec, problems := CheckManifest(field.NewPath("spec"), r.Object["spec"])
	if r.Old != nil || spec == nil {
		return problems, nil
	}
	var all api.VirtualMachineRestoreList
	if err := live.List(ctx, &all, client.InNamespace(r.Meta.Namespace)); err != nil {
		return nil, fmt.Errorf("list restores in %s: %w", r.Meta.Namespace, err)
	}
	for i := range all.Items {
		if other := &all.Items[i]; other.Spec.Target.Name == spec.Target.Name && !ended(other) {
			return field.ErrorList{field.Forbidden(field.NewPath("spec", "target"),
				fmt.Sprintf("VirtualMachineRestore %q in progress", other.Name))}, nil
		}
	}
	return nil, nil
}
