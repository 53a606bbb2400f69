package vmspec

import (
	"encoding/json"
	"maps"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/util/validation/field"
	kubevirt "kubevirt.io/api/core/v1"
	kjson "sigs.k8s.io/json"
)

// CheckVMI decodes a VMI's spec out of a manifest, which may say more than a
// node reads: the pod's affinity, its probes and so on. It returns every problem
// with its path, contradictions between sound fields included; at is the spec's
// own path. The spec is nil if there is a problem.
func CheckVMI(at *field.Path, tree any) (*kubevirt.VirtualMachineInstanceSpec, field.ErrorList) {
	return checkManifest(at, tree, false)
}

// checkManifest is CheckVMI of a spec that, if it is sized, leaves its size to an
// instance type.
func checkManifest(at *field.Path, tree any, sized bool) (*kubevirt.VirtualMachineInstanceSpec, field.ErrorList) {
	tree, problems := oldDisks(at, tree)
	spec, p := checkAs[fields](vmiTable(), at, tree)
	problems = append(problems, p...)
	if spec == nil {
		return nil, problems
	}
	vmi := (*kubevirt.VirtualMachineInstanceSpec)(spec)
	t, further := translate(at, vmi, request{})
	switch {
	case sized:
		further = append(further, SizeConflicts(at, vmi)...)
	case t.Memory == 0:
		missing := field.Required(at.Child("domain", "memory", "guest"), "a VM needs memory; say how much of it")
		further = append(further, unrelated(field.ErrorList{missing}, further)...)
	}
	further = append(further, checkPod(at, vmi)...)
	if problems = append(problems, unrelated(further, problems)...); len(problems) > 0 {
		return nil, problems
	}
	return vmi, nil
}

// CheckVM decodes a VM's spec out of a manifest, as [CheckVMI] does a VMI's,
// which is its template's.
func CheckVM(at *field.Path, tree any) (*kubevirt.VirtualMachineSpec, field.ErrorList) {
	vm := new(kubevirt.VirtualMachineSpec)
	vmi, problems := checkTemplate(at, tree, vmTable(), vm)
	problems = append(problems, unrelated(checkMatchers(at, vm), problems)...)
	if len(problems) > 0 {
		return nil, problems
	}
	vm.Template.Spec = *vmi
	return vm, nil
}

// checkTemplate decodes a spec that has a template of instances, by a table of what
// it may say beside the template's spec, which is returned. It is nil if there is
// a problem.
func checkTemplate(at *field.Path, tree any, by table, into any) (*kubevirt.VirtualMachineInstanceSpec, field.ErrorList) {
	rest, instance, given := cutTemplate(tree)
	sound, problems := by.check(at, rest)
	if err := decode(sound, into); err != nil {
		problems = append(problems, invalid(at, field.OmitValueType{}, "%s", excerpt(err.Error())))
	}
	if !given {
		return nil, append(problems, field.Required(at.Child("template", "spec"), "it says what machine this is"))
	}
	object, _ := rest.(map[string]any) // what else may have a template has no such field
	vmi, p := checkManifest(at.Child("template", "spec"), instance, object["instancetype"] != nil)
	if problems = append(problems, p...); len(problems) > 0 {
		return nil, problems
	}
	return vmi, nil
}

// cutTemplate takes the template's spec out of a VM's, or of a replica set's.
func cutTemplate(tree any) (rest, spec any, given bool) {
	vm, ok := tree.(map[string]any)
	if !ok {
		return tree, nil, false
	}
	template, ok := vm["template"].(map[string]any)
	if !ok {
		return tree, nil, false
	}
	spec = template["spec"]
	vm, template = maps.Clone(vm), maps.Clone(template)
	delete(template, "spec")
	vm["template"] = template
	return vm, spec, spec != nil
}

func decode(tree, into any) error {
	text, err := json.Marshal(tree)
	if err != nil {
		return err
	}
	return kjson.UnmarshalCaseSensitivePreserveInts(text, into)
}

// unrelated returns the problems that don't come of others: neither at the same
// place, nor above or below one.
func unrelated(problems, of field.ErrorList) field.ErrorList {
	below := func(path, of string) bool {
		rest, ok := strings.CutPrefix(path, of)
		return ok && (rest == "" || rest[0] == '.' || rest[0] == '[')
	}
	return slices.DeleteFunc(problems, func(p *field.Error) bool {
		return slices.ContainsFunc(of, func(o *field.Error) bool {
			return below(p.Field, o.Field) || below(o.Field, p.Field)
		})
	})
}

// Sentence is a problem with its path, in words.
func Sentence(p *field.Error) string { return clip(p.Field, maxPath) + ": " + body(p) }

// Preview returns the machine that a VMI which [CheckVMI] found sound describes,
// as far as that goes without its pod.
func Preview(vmi *kubevirt.VirtualMachineInstanceSpec) Spec {
	t, _ := translate(field.NewPath("spec"), vmi, request{})
	return t.Spec
}
