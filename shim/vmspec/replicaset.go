package vmspec

import (
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/util/validation/field"
	kubevirt "kubevirt.io/api/core/v1"
)

// supportedOfReplicaSets is what a VirtualMachineInstanceReplicaSet's spec may say
// beside its template.
var supportedOfReplicaSets = []row{
	{"replicas", integer(0, 1<<31-1)},
	{"paused", boolean},
}

var wholesOfReplicaSets = []whole{{"selector", "a label selector", selector}}

// replicaSetTable is what a manifest may say of a replica set beside its
// template's spec.
func replicaSetTable() table {
	return newTable(func() any { return new(kubevirt.VirtualMachineInstanceReplicaSetSpec) },
		supportedOfReplicaSets, slices.Concat(wholesOfReplicaSets, wholesOfVMs))
}

// ReplicaSetPaths returns the paths of a replica set's fields that a manifest may
// use beside its template's spec.
func ReplicaSetPaths() []string {
	return paths("spec.", supportedOfReplicaSets, slices.Concat(wholesOfReplicaSets, wholesOfVMs))
}

// CheckReplicaSet decodes a replica set's spec out of a manifest, as [CheckVM] does
// a VM's. The selector has to select what the template makes.
func CheckReplicaSet(at *field.Path, tree any) (*kubevirt.VirtualMachineInstanceReplicaSetSpec, field.ErrorList) {
	set := new(kubevirt.VirtualMachineInstanceReplicaSetSpec)
	vmi, problems := checkTemplate(at, tree, replicaSetTable(), set)
	if further := checkSelector(at, set); len(further) > 0 {
		problems = append(problems, unrelated(further, problems)...)
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
		return field.ErrorList{field.Required(here, "it says by their labels which instances are the set's")}
	case len(s.MatchLabels)+len(s.MatchExpressions) == 0:
		return field.ErrorList{invalid(here, field.OmitValueType{}, "selects every instance of the namespace; name labels")}
	}
	matches, err := metav1.LabelSelectorAsSelector(set.Selector)
	if err != nil || set.Template == nil {
		return nil // told already
	}
	if !matches.Matches(labels.Set(set.Template.ObjectMeta.Labels)) {
		return field.ErrorList{invalid(here, field.OmitValueType{},
			"does not match the labels of template.metadata.labels; give the template the labels that it selects")}
	}
	return nil
}
