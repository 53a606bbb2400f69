package clone

import (
	"maps"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/util/validation/field"
	"kubevirt.io/api/clone/v1beta1"
	kubevirt "kubevirt.io/api/core/v1"
	snapshotapi "kubevirt.io/api/snapshot/v1beta1"

	"github.com/nodevirt/nodevirt/controller/restore"
	"github.com/nodevirt/nodevirt/shim/fields"
	"github.com/nodevirt/nodevirt/shim/vmspec"
)

const (
	kindVM       = "VirtualMachine"
	kindSnapshot = "VirtualMachineSnapshot"
)

const (
	// maxPatches bounds the author's patches.
	maxPatches = 64
	// maxFilter bounds a filter, in bytes: a key of a label or an annotation, with ! and *.
	maxFilter = 320
	// maxAddresses bounds the interfaces with a MAC address; a VM has fewer.
	maxAddresses = 64
)

// Supported returns the fields of a clone's spec that a manifest may have.
func Supported() fields.Supported {
	rows := []fields.Row{
		fields.At("source.apiGroup", fields.OneOf(kubevirt.GroupVersion.Group, snapshotapi.SchemeGroupVersion.Group)),
		fields.At("source.kind", fields.OneOf(kindVM, kindSnapshot)),
		fields.At("source.name", fields.Subdomain),
		fields.At("target.apiGroup", fields.OneOf(kubevirt.GroupVersion.Group)),
		fields.At("target.kind", fields.OneOf(kindVM)),
		fields.At("target.name", vmName),
		fields.At("newSMBiosSerial", vmspec.Supported().Takes("domain.firmware.serial")),
		fields.At("patches", fields.List(maxPatches)),
		fields.At("patches[]", fields.Text(restore.MaxPatch)),
		fields.At("volumeNamePolicy", fields.OneOf(v1beta1.VolumeNamePolicyRandomizeNames, v1beta1.VolumeNamePolicyPrefixTargetName)),
	}
	for _, path := range []string{"labelFilters", "annotationFilters", "template.labelFilters", "template.annotationFilters"} {
		rows = append(rows, fields.At(path+"[]", filter))
	}
	return fields.Supported{
		Rows:   rows,
		Wholes: []fields.Whole{{Path: "newMacAddresses", Is: "MAC addresses by the interfaces' names", Check: checkAddresses}},
	}
}

// vmName takes the name of a VM.
func vmName(at *field.Path, value any) *field.Error {
	if problem := fields.Subdomain(at, value); problem != nil {
		return problem
	}
	return fields.Text(fields.MaxLabel)(at, value)
}

// filter takes a key, or with * at its end the beginning of keys; ! before it leaves them out.
func filter(at *field.Path, value any) *field.Error {
	if problem := fields.Text(maxFilter)(at, value); problem != nil {
		return problem
	}
	text, _ := value.(string)
	key := strings.TrimSuffix(strings.TrimPrefix(text, "!"), "*")
	if text == "" || text == "!" || strings.ContainsAny(key, "!*") {
		return fields.Invalid(at, text, "must be a key, or the beginning of keys and *; ! comes first")
	}
	return nil
}

func checkAddresses(at *field.Path, value any) field.ErrorList {
	given, ok := value.(map[string]any)
	if !ok {
		return field.ErrorList{fields.WrongType(at, value, "an object")}
	}
	if len(given) > maxAddresses {
		return field.ErrorList{field.TooMany(at, len(given), maxAddresses)}
	}
	var problems field.ErrorList
	takes := vmspec.Supported().Takes("domain.devices.interfaces[].macAddress")
	for _, name := range slices.Sorted(maps.Keys(given)) {
		if problem := takes(at.Key(fields.Excerpt(name)), given[name]); problem != nil {
			problems = append(problems, problem)
		}
	}
	return problems
}

// CheckManifest decodes a clone's spec out of a manifest. The spec is nil if there is a problem.
func CheckManifest(at *field.Path, tree any) (*v1beta1.VirtualMachineCloneSpec, field.ErrorList) {
	table := Supported().Table(func() any { return new(v1beta1.VirtualMachineCloneSpec) })
	spec, problems := fields.CheckAs[v1beta1.VirtualMachineCloneSpec](table, at, tree)
	if len(problems) > 0 {
		return nil, problems
	}
	problems = append(checkSource(at.Child("source"), spec), checkTarget(at.Child("target"), spec)...)
	problems = append(problems, restore.CheckPatches(at.Child("patches"), spec.Patches)...)
	if len(problems) > 0 {
		return nil, problems
	}
	return spec, nil
}

func checkSource(at *field.Path, spec *v1beta1.VirtualMachineCloneSpec) field.ErrorList {
	of := spec.Source
	if of == nil {
		return field.ErrorList{field.Required(at, "a "+kindVM+" or a "+kindSnapshot)}
	}
	var problems field.ErrorList
	group := kubevirt.GroupVersion.Group
	switch of.Kind {
	case "":
		problems = append(problems, field.Required(at.Child("kind"), kindVM+" or "+kindSnapshot))
	case kindSnapshot:
		group = snapshotapi.SchemeGroupVersion.Group
	}
	if g := of.APIGroup; g == nil || *g == "" {
		problems = append(problems, field.Required(at.Child("apiGroup"), group))
	} else if of.Kind != "" && *g != group {
		problems = append(problems, fields.Invalid(at.Child("apiGroup"), *g, "must be %s for a %s", group, of.Kind))
	}
	if of.Name == "" {
		problems = append(problems, field.Required(at.Child("name"), "the name of what is cloned"))
	}
	return problems
}

func checkTarget(at *field.Path, spec *v1beta1.VirtualMachineCloneSpec) field.ErrorList {
	of, target := spec.Source, spec.Target
	switch {
	case target == nil:
		return nil
	case target.Kind == "":
		return field.ErrorList{field.Required(at.Child("kind"), kindVM)}
	case of != nil && of.Kind == kindVM && of.Name == target.Name:
		return field.ErrorList{fields.Invalid(at.Child("name"), target.Name, "must not be the source's")}
	}
	return nil
}
