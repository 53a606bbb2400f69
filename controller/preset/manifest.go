package preset

import (
	"k8s.io/apimachinery/pkg/util/validation/field"
	kubevirt "kubevirt.io/api/core/v1"

	"github.com/nodevirt/nodevirt/controller/manifest"
	"github.com/nodevirt/nodevirt/shim/fields"
	"github.com/nodevirt/nodevirt/shim/vmspec"
)

// Supported returns the fields of a preset's spec: the selector, and the domain of
// a VMI.
func Supported() fields.Supported {
	return vmspec.Supported().Below("domain.").And(fields.Supported{
		Wholes: []fields.Whole{{Path: "selector", Is: "a label selector", Check: manifest.LabelSelector}},
	})
}

// CheckManifest checks a preset's spec out of a manifest, field by field. What the
// fields of several presets make together is checked with the instance.
func CheckManifest(at *field.Path, tree any) field.ErrorList {
	table := Supported().Table(func() any { return new(kubevirt.VirtualMachineInstancePresetSpec) })
	spec, problems := fields.CheckAs[kubevirt.VirtualMachineInstancePresetSpec](table, at, tree)
	if spec != nil && spec.Domain != nil {
		for i, d := range spec.Domain.Devices.Disks {
			if p := vmspec.CheckDevice(at.Child("domain", "devices", "disks").Index(i), d); p != nil {
				problems = append(problems, p)
			}
		}
	}
	preset, ok := tree.(map[string]any)
	if !ok {
		return problems
	}
	for name, why := range map[string]string{
		"selector": "selects the instances by their labels",
		"domain":   "the part of an instance that the preset sets",
	} {
		if preset[name] == nil {
			problems = append(problems, field.Required(at.Child(name), why))
		}
	}
	return problems
}
