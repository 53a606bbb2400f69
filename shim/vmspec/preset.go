package vmspec

import (
	"strings"

	"k8s.io/apimachinery/pkg/util/validation/field"
	kubevirt "kubevirt.io/api/core/v1"
)

var wholesOfPresets = []whole{{"selector", "a label selector", selector}}

// presetTable is what a VirtualMachineInstancePreset may say: the part of
// [supported] that is about a machine's domain.
func presetTable() table {
	var rows []row
	for _, r := range supported {
		if strings.HasPrefix(r.path, "domain.") {
			rows = append(rows, r)
		}
	}
	return newTable(func() any { return new(kubevirt.VirtualMachineInstancePresetSpec) }, rows, wholesOfPresets)
}

// CheckPreset checks a preset's spec out of a manifest, field by field: what they
// make together shows on an instance.
func CheckPreset(at *field.Path, tree any) field.ErrorList {
	_, problems := presetTable().check(at, tree)
	preset, ok := tree.(map[string]any)
	if !ok {
		return problems
	}
	for name, why := range map[string]string{
		"selector": "it says by their labels for which instances the preset is",
		"domain":   "it says what the preset gives to an instance",
	} {
		if preset[name] == nil {
			problems = append(problems, field.Required(at.Child(name), why))
		}
	}
	return problems
}
