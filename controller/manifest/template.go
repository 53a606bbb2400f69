package manifest

import (
	"maps"

	"k8s.io/apimachinery/pkg/util/validation/field"
	kubevirt "kubevirt.io/api/core/v1"

	"github.com/nodevirt/nodevirt/shim/fields"
)

// TemplateFields returns the fields of a template beside its spec, for every kind
// whose objects create instances.
func TemplateFields() fields.Supported {
	supported := fields.Supported{Wholes: []fields.Whole{
		{Path: "template.metadata.labels", Is: "a map of labels", Check: LabelMap},
		{Path: "template.metadata.annotations", Is: "a map of annotations", Check: AnnotationMap},
	}}
	for _, name := range IgnoredNames() {
		supported.Rows = append(supported.Rows, fields.At("template.metadata."+name, fields.Text(253)))
	}
	return supported
}

// IgnoredNames returns the fields of a template's metadata that have no effect, as with
// KubeVirt: an instance's name and namespace follow from its owner's.
func IgnoredNames() []string { return []string{"name", "generateName", "namespace"} }

// CheckTemplate decodes a spec that has a template of instances into a value of
// the API. By lists the supported fields beside the template's spec, which is
// returned and is not decoded into the value. It is nil if there is a problem.
func CheckTemplate(
	at *field.Path, tree any, by fields.Table, into any,
) (*kubevirt.VirtualMachineInstanceSpec, field.ErrorList) {
	rest, instance, given := cutTemplate(tree)
	sound, problems := by.Check(at, rest)
	if err := fields.Decode(sound, into); err != nil {
		problems = append(problems, fields.Invalid(at, field.OmitValueType{}, "%s", fields.Excerpt(err.Error())))
	}
	if !given {
		return nil, append(problems, field.Required(at.Child("template", "spec"), "describe the VM here"))
	}
	object, _ := rest.(map[string]any) // only VirtualMachines have this field
	vmi, p := checkSpec(at.Child("template", "spec"), instance, object["instancetype"] != nil)
	if problems = append(problems, p...); len(problems) > 0 {
		return nil, problems
	}
	return vmi, nil
}

// cutTemplate takes the template's spec out of the spec of a VM or of a replica set.
func cutTemplate(tree any) (rest, spec any, given bool) {
	owner, ok := tree.(map[string]any)
	if !ok {
		return tree, nil, false
	}
	template, ok := owner["template"].(map[string]any)
	if !ok {
		return tree, nil, false
	}
	spec = template["spec"]
	owner, template = maps.Clone(owner), maps.Clone(template)
	delete(template, "spec")
	owner["template"] = template
	return owner, spec, spec != nil
}
