package migration

import (
	"context"
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/util/validation/field"
	kubevirt "kubevirt.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/nodevirt/nodevirt/controller/admission"
	"github.com/nodevirt/nodevirt/controller/pages"
	instances "github.com/nodevirt/nodevirt/controller/vmi"
)

func rules() admission.Rules {
	return admission.Rules{
		Finalizer:   kubevirt.VirtualMachineInstanceMigrationFinalizer,
		Labels:      labels,
		Check:       admission.CheckSpec("name the VMI in vmiName", CheckManifest),
		CheckUpdate: admission.SameSpec("update of Migration object's spec is restricted"),
		CheckTypes:  checkInstance,
	}
}

// labels returns that by which clients find the migrations of an instance.
func labels(r *admission.Review) map[string]string {
	spec, _ := CheckManifest(field.NewPath("spec"), r.Object["spec"])
	if spec == nil || len(spec.VMIName) > maxLabel {
		return nil
	}
	return map[string]string{kubevirt.MigrationSelectorLabel: spec.VMIName}
}

// maxLabel is the length of a label's value.
const maxLabel = 63

// checkInstance refuses a new migration of an instance that cannot be migrated now.
func checkInstance(ctx context.Context, live client.Reader, r *admission.Review) (field.ErrorList, error) {
	if r.Old != nil {
		return nil, nil
	}
	at := field.NewPath("spec", "vmiName")
	spec, problems := CheckManifest(field.NewPath("spec"), r.Object["spec"])
	if len(problems) > 0 {
		return problems, nil
	}
	vmi := new(kubevirt.VirtualMachineInstance)
	key := client.ObjectKey{Namespace: r.Meta.Namespace, Name: spec.VMIName}
	err := live.Get(ctx, key, vmi)
	if apierrors.IsNotFound(err) {
		return field.ErrorList{field.Forbidden(at, fmt.Sprintf("the VMI \"%s\" does not exist", key))}, nil
	}
	if err != nil {
		return nil, fmt.Errorf("read VMI %s: %w", key, err)
	}
	if why := unable(vmi); why != "" {
		return field.ErrorList{field.Forbidden(at, why)}, nil
	}
	var problem field.ErrorList
	empty := func() *kubevirt.VirtualMachineInstanceMigrationList {
		return new(kubevirt.VirtualMachineInstanceMigrationList)
	}
	err = pages.Each(ctx, live, key.Namespace, empty, func(page *kubevirt.VirtualMachineInstanceMigrationList) (bool, error) {
		for i := range page.Items {
			if m := &page.Items[i]; m.Spec.VMIName == spec.VMIName && !m.IsFinal() {
				problem = field.ErrorList{field.Forbidden(at, fmt.Sprintf(
					"in-flight migration detected. Active migration job (%s) is currently already in progress for VMI %s.", m.UID, spec.VMIName))}
				return true, nil
			}
		}
		return false, nil
	})
	if err != nil {
		return nil, fmt.Errorf("list migrations of VMI %s: %w", key, err)
	}
	return problem, nil
}

// unable returns why an instance cannot migrate; "" for one that can, or will say whether it can once its guest runs.
func unable(vmi *kubevirt.VirtualMachineInstance) string {
	able, c := instances.IsMigratable(vmi)
	switch {
	case vmi.IsFinal():
		return "Cannot migrate VMI in finalized state."
	case vmi.DeletionTimestamp != nil:
		return "Cannot migrate VMI that is being deleted."
	case able || c == nil:
		return ""
	}
	return fmt.Sprintf("Cannot migrate VMI, Reason: %s, Message: %s", c.Reason, c.Message)
}

// eligible reports whether a migration of an instance can begin now.
func eligible(vmi *kubevirt.VirtualMachineInstance) bool {
	able, _ := instances.IsMigratable(vmi)
	return able && unable(vmi) == "" && vmi.Status.Phase == kubevirt.Running
}
