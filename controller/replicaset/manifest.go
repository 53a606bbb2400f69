package replicaset

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/util/validation/field"
	kubevirt "kubevirt.io/api/core/v1"

	"github.com/nodevirt/nodevirt/controller/manifest"
	"github.com/nodevirt/nodevirt/shim/fields"
)

// Supported returns the fields of a replica set's spec that a manifest may have
// beside its template's spec, which is a VMI's.
func Supported() fields.Supported {
	return fields.Supported{
		Rows: []fields.Row{
			fields.At("replicas", fields.Integer(0, 1<<31-1)),
			fields.At("paused", fields.Boolean),
		},
		Wholes: []fields.Whole{{Path: "selector", Is: "a label selector", Check: manifest.LabelSelector}},
	}.And(manifest.TemplateFields())
}

// CheckManifest decodes a replica set's spec out of a manifest, as
// [manifest.CheckVMI] decodes a VMI's. The selector must select what the template
// creates. The spec is nil if there is a problem.
func CheckManifest(at *field.Path, tree any) (*kubevirt.VirtualMachineInstanceReplicaSetSpec, field.ErrorList) {
	set := new(kubevirt.VirtualMachineInstanceReplicaSetSpec)
	table := Supported().Table(func() any { return new(kubevirt.VirtualMachineInstanceReplicaSetSpec) })
	vmi, problems := manifest.CheckTemplate(at, tree, table, set)
	if further := checkSelector(at, set); len(further) > 0 {
		problems = append(problems, fields.Unrelated(further, problems)...)
	}
	if len(problems) > 0 {
		return nil, problems
	}
	set.Template.Spec = *vmi
	return set, nil
}

func checkSelector(at *field.Path, set *kubevirt.VirtualMachineInstanceReplicaSetSpec) field.ErrorList {
	here := at.Child("selector")
	switch s := set.Selector; {
	case s == nil:
		return field.ErrorList{field.Required(here, "selects the set's instances by their labels")}
	case len(s.MatchLabels)+len(s.MatchExpressions) == 0:
		return field.ErrorList{fields.Invalid(here, field.OmitValueType{}, "selects every instance of the namespace; name labels")}
	}
	matches, err := metav1.LabelSelectorAsSelector(set.Selector)
	if err != nil || set.Template == nil {
		return nil // the table and CheckTemplate report both
	}
	if !matches.Matches(labels.Set(set.Template.ObjectMeta.Labels)) {
		return field.ErrorList{fields.Invalid(here, field.OmitValueType{},
			"does not match the labels of template.metadata.labels; give the template the labels that it selects")}
	}
	return nil
}
