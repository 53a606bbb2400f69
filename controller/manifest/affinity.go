package manifest

import (
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/validate/content"
	metavalidation "k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/nodevirt/nodevirt/shim/fields"
)

// The names of the two lists that each kind of affinity has.
const (
	required  = "requiredDuringSchedulingIgnoredDuringExecution"
	preferred = "preferredDuringSchedulingIgnoredDuringExecution"
)

func checkAffinity(at *field.Path, a *corev1.Affinity) field.ErrorList {
	var problems field.ErrorList
	if n := a.NodeAffinity; n != nil {
		problems = append(problems, nodeAffinity(at.Child("nodeAffinity"), n)...)
	}
	if p := a.PodAffinity; p != nil {
		problems = append(problems, podAffinity(at.Child("podAffinity"),
			p.RequiredDuringSchedulingIgnoredDuringExecution,
			p.PreferredDuringSchedulingIgnoredDuringExecution)...)
	}
	if p := a.PodAntiAffinity; p != nil {
		problems = append(problems, podAffinity(at.Child("podAntiAffinity"),
			p.RequiredDuringSchedulingIgnoredDuringExecution,
			p.PreferredDuringSchedulingIgnoredDuringExecution)...)
	}
	return problems
}

func nodeAffinity(at *field.Path, n *corev1.NodeAffinity) field.ErrorList {
	var problems field.ErrorList
	if r := n.RequiredDuringSchedulingIgnoredDuringExecution; r != nil {
		at := at.Child(required, "nodeSelectorTerms")
		if len(r.NodeSelectorTerms) == 0 {
			problems = append(problems, field.Required(at, "without a term no node fits"))
		}
		for i, term := range r.NodeSelectorTerms {
			problems = append(problems, nodeTerm(at.Index(i), term)...)
		}
	}
	for i, p := range n.PreferredDuringSchedulingIgnoredDuringExecution {
		at := at.Child(preferred).Index(i)
		problems = append(problems, weight(at, p.Weight)...)
		problems = append(problems, nodeTerm(at.Child("preference"), p.Preference)...)
	}
	return problems
}

func nodeTerm(at *field.Path, term corev1.NodeSelectorTerm) field.ErrorList {
	var problems field.ErrorList
	for i, r := range term.MatchExpressions {
		problems = append(problems, nodeRequirement(at.Child("matchExpressions").Index(i), r)...)
	}
	for i, r := range term.MatchFields {
		at := at.Child("matchFields").Index(i)
		if r.Key != "metadata.name" {
			problems = append(problems, fields.Invalid(at.Child("key"), r.Key, "must be metadata.name"))
		}
		if (r.Operator != corev1.NodeSelectorOpIn && r.Operator != corev1.NodeSelectorOpNotIn) || len(r.Values) != 1 {
			problems = append(problems, fields.Refused(at, "must be In or NotIn with one value"))
		}
	}
	return problems
}

func nodeRequirement(at *field.Path, r corev1.NodeSelectorRequirement) field.ErrorList {
	var problems field.ErrorList
	if r.Key == "" || len(content.IsLabelKey(r.Key)) > 0 {
		problems = append(problems, fields.Invalid(at.Child("key"), r.Key, "must be a label's key"))
	}
	values, least, most := at.Child("values"), 0, 0
	switch r.Operator {
	case corev1.NodeSelectorOpIn, corev1.NodeSelectorOpNotIn:
		least, most = 1, 1<<16
	case corev1.NodeSelectorOpExists, corev1.NodeSelectorOpDoesNotExist:
	case corev1.NodeSelectorOpGt, corev1.NodeSelectorOpLt:
		least, most = 1, 1
	default:
		return append(problems, field.NotSupported(at.Child("operator"), r.Operator, []corev1.NodeSelectorOperator{
			corev1.NodeSelectorOpIn, corev1.NodeSelectorOpNotIn, corev1.NodeSelectorOpExists,
			corev1.NodeSelectorOpDoesNotExist, corev1.NodeSelectorOpGt, corev1.NodeSelectorOpLt,
		}))
	}
	switch n := len(r.Values); {
	case n < least:
		problems = append(problems, field.Required(values, "operator "+string(r.Operator)+" requires a value"))
	case n > most:
		problems = append(problems, fields.Refused(values, "operator %s takes %d values", r.Operator, most))
	}
	return problems
}

func podAffinity(
	at *field.Path, must []corev1.PodAffinityTerm, should []corev1.WeightedPodAffinityTerm,
) field.ErrorList {
	var problems field.ErrorList
	for i, term := range must {
		problems = append(problems, podTerm(at.Child(required).Index(i), term)...)
	}
	for i, p := range should {
		at := at.Child(preferred).Index(i)
		problems = append(problems, weight(at, p.Weight)...)
		problems = append(problems, podTerm(at.Child("podAffinityTerm"), p.PodAffinityTerm)...)
	}
	return problems
}

func podTerm(at *field.Path, term corev1.PodAffinityTerm) field.ErrorList {
	var problems field.ErrorList
	if term.TopologyKey == "" || len(content.IsLabelKey(term.TopologyKey)) > 0 {
		problems = append(problems, fields.Invalid(at.Child("topologyKey"), term.TopologyKey, "must be a label's key"))
	}
	options := metavalidation.LabelSelectorValidationOptions{}
	problems = append(problems,
		metavalidation.ValidateLabelSelector(term.LabelSelector, options, at.Child("labelSelector"))...)
	return append(problems,
		metavalidation.ValidateLabelSelector(term.NamespaceSelector, options, at.Child("namespaceSelector"))...)
}

func weight(at *field.Path, n int32) field.ErrorList {
	if n < 1 || n > 100 {
		return field.ErrorList{fields.Invalid(at.Child("weight"), n, "must be from 1 to 100")}
	}
	return nil
}
