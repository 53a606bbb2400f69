package manifest

import (
	"maps"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/util/validation/field"
	kubevirt "kubevirt.io/api/core/v1"

	"github.com/nodevirt/nodevirt/shim/fields"
)

// TemplateFields returns the fields beside its spec of the template at a path, for
// every kind whose objects create instances or VMs.
func TemplateFields(template string) fields.Supported {
	at := template + ".metadata."
	supported := fields.Supported{Wholes: []fields.Whole{
		{Path: at + "labels", Is: "a map of labels", Check: LabelMap},
		{Path: at + "annotations", Is: "a map of annotations", Check: AnnotationMap},
	}}
	for _, name := range IgnoredNames() {
		supported.Rows = append(supported.Rows, fields.At(at+name, fields.Text(253)))
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
	rest, instance, given := CutTemplate(tree, "template")
	sound, problems := by.Check(at, rest)
	if err := fields.Decode(sound, into); err != nil {
		problems = append(problems, fields.Invalid(at, field.OmitValueType{}, "%s", fields.Excerpt(err.Error())))
	}
	if !given {
		return nil, append(problems, field.Required(at.Child("template", "spec"), "describe the VM here"))
	}
	object, _ := rest.(map[string]any) // only VirtualMachines have this field
	size := anySize
	if object["instancetype"] != nil {
		size = SizeConflicts
	}
	vmi, p := checkSpec(at.Child("template", "spec"), instance, size)
	if problems = append(problems, p...); len(problems) > 0 {
		return nil, problems
	}
	return vmi, nil
}

// CutTemplate takes the spec of the template of a name out of its owner's spec, and
// reports whether there is one.
func CutTemplate(tree any, name string) (rest, spec any, given bool) {
	owner, ok := tree.(map[string]any)
	if !ok {
		return tree, nil, false
	}
	template, ok := owner[name].(map[string]any)
	if !ok {
		return tree, nil, false
	}
	spec = template["spec"]
	owner, template = maps.Clone(owner), maps.Clone(template)
	delete(template, "spec")
	owner[name] = template
	return owner, spec, spec != nil
}

// CheckSelector requires a selector that selects what a template creates, by the
// labels at the path of, and not everything.
func CheckSelector(at *field.Path, s *metav1.LabelSelector, of string, given map[string]string) field.ErrorList {
	switch {
	case s == nil:
		return field.ErrorList{field.Required(at, "selects what the template creates, by labels")}
	case len(s.MatchLabels)+len(s.MatchExpressions) == 0:
		return field.ErrorList{fields.Invalid(at, field.OmitValueType{}, "selects everything in the namespace; name labels")}
	}
	matches, err := metav1.LabelSelectorAsSelector(s)
	if err == nil && !matches.Matches(labels.Set(given)) { // the table reports an error
		return field.ErrorList{fields.Invalid(at, field.OmitValueType{},
			"selector does not match labels of %s; give the template the labels that it selects", of)}
	}
	return nil
}
