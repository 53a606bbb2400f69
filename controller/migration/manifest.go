package migration

import (
	"k8s.io/apimachinery/pkg/util/validation/field"
	kubevirt "kubevirt.io/api/core/v1"

	"github.com/nodevirt/nodevirt/controller/manifest"
	"github.com/nodevirt/nodevirt/shim/fields"
)

// Supported returns the fields of a migration's spec that a manifest may have.
func Supported() fields.Supported {
	const clusters = "nodevirt migrates VMs within a cluster"
	return fields.Supported{
		Rows: []fields.Row{
			fields.At("vmiName", fields.Subdomain),
			fields.At("priority", fields.OneOf(
				kubevirt.PrioritySystemCritical, kubevirt.PriorityUserTriggered, kubevirt.PrioritySystemMaintenance)),
		},
		Wholes: []fields.Whole{{Path: "addedNodeSelector", Is: "a map of labels", Check: manifest.LabelMap}},
		Hints:  map[string]string{"sendTo": clusters, "receive": clusters},
	}
}

// CheckManifest decodes a migration's spec out of a manifest. The spec is nil if there is
// a problem.
func CheckManifest(at *field.Path, tree any) (*kubevirt.VirtualMachineInstanceMigrationSpec, field.ErrorList) {
	table := Supported().Table(func() any { return new(kubevirt.VirtualMachineInstanceMigrationSpec) })
	spec, problems := fields.CheckAs[kubevirt.VirtualMachineInstanceMigrationSpec](table, at, tree)
	if len(problems) == 0 && spec.VMIName == "" {
		problems = append(problems, field.Required(at.Child("vmiName"), "vmiName is missing"))
	}
	if len(problems) > 0 {
		return nil, problems
	}
	return spec, nil
}
