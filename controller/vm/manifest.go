package vm

import (
	"strings"
	"sync"

	"k8s.io/apimachinery/pkg/util/validation/field"
	kubevirt "kubevirt.io/api/core/v1"

	"github.com/nodevirt/nodevirt/controller/manifest"
	"github.com/nodevirt/nodevirt/shim/fields"
)

// Supported returns the fields of a VirtualMachine's spec that a manifest may have
// beside its template's spec, which is a VMI's.
func Supported() fields.Supported {
	return fields.Supported{
		Rows: []fields.Row{
			fields.At("running", fields.Boolean),
			fields.At("runStrategy", fields.OneOf(kubevirt.RunStrategyAlways, kubevirt.RunStrategyRerunOnFailure,
				kubevirt.RunStrategyManual, kubevirt.RunStrategyHalted, kubevirt.RunStrategyOnce)),
			fields.At("updateVolumesStrategy", fields.OneOf(kubevirt.UpdateVolumesStrategyReplacement, kubevirt.UpdateVolumesStrategyMigration)),
			fields.At("instancetype.kind", kindOf("VirtualMachineInstancetype", "VirtualMachineClusterInstancetype")),
			fields.At("instancetype.name", fields.Subdomain),
			fields.At("instancetype.revisionName", fields.Subdomain),
			fields.At("instancetype.inferFromVolume", fields.Label),
			fields.At("instancetype.inferFromVolumeFailurePolicy", inferPolicy()),
			fields.At("preference.kind", kindOf("VirtualMachinePreference", "VirtualMachineClusterPreference")),
			fields.At("preference.name", fields.Subdomain),
			fields.At("preference.revisionName", fields.Subdomain),
			fields.At("preference.inferFromVolume", fields.Label),
			fields.At("preference.inferFromVolumeFailurePolicy", inferPolicy()),
		},
	}.And(dataVolumeFields()).And(manifest.TemplateFields("template"))
}

// table makes the table of a VirtualMachine's spec at the first call.
var table = sync.OnceValue(func() fields.Table {
	return Supported().Table(func() any { return new(kubevirt.VirtualMachineSpec) })
})

// CheckManifest decodes a VirtualMachine's spec out of a manifest, as
// [manifest.CheckVMI] decodes a VMI's. The spec is nil if there is a problem.
func CheckManifest(at *field.Path, tree any) (*kubevirt.VirtualMachineSpec, field.ErrorList) {
	vm := new(kubevirt.VirtualMachineSpec)
	vmi, problems := manifest.CheckTemplate(at, tree, table(), vm)
	problems = append(problems, fields.Unrelated(append(checkMatchers(at, vm), checkTemplates(at, vm, vmi)...), problems)...)
	if len(problems) > 0 {
		return nil, problems
	}
	vm.Template.Spec = *vmi
	return vm, nil
}

// checkMatchers requires names of the instance type and of the preference, or volumes to infer them from.
func checkMatchers(at *field.Path, vm *kubevirt.VirtualMachineSpec) field.ErrorList {
	var problems field.ErrorList
	if vm.Instancetype != nil && vm.Instancetype.Name+vm.Instancetype.InferFromVolume == "" {
		problems = append(problems, field.Required(at.Child("instancetype", "name"), "the name of an instance type"))
	}
	if vm.Preference != nil && vm.Preference.Name+vm.Preference.InferFromVolume == "" {
		problems = append(problems, field.Required(at.Child("preference", "name"), "the name of a preference"))
	}
	return problems
}

// inferPolicy takes what KubeVirt does.
func inferPolicy() fields.Takes {
	return fields.OneOf(kubevirt.RejectInferFromVolumeFailure, kubevirt.IgnoreInferFromVolumeFailure)
}

// kindOf takes the name of a resource's kind, or of the resource, in any case.
func kindOf(kinds ...string) fields.Takes {
	return fields.String(func(at *field.Path, s string) *field.Error {
		for _, kind := range kinds {
			if strings.EqualFold(s, kind) || strings.EqualFold(s, kind+"s") {
				return nil
			}
		}
		return field.NotSupported(at, fields.Excerpt(s), kinds)
	})
}
