package manifest

import (
	"encoding/json"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/validate/content"
	apivalidation "k8s.io/apimachinery/pkg/api/validation"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	metavalidation "k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
	utilnet "k8s.io/utils/net"
	kjson "sigs.k8s.io/json"

	"github.com/nodevirt/nodevirt/shim/fields"
)

// The rules of the API server for a pod's fields. k8s.io/kubernetes has them in
// pkg/apis/core/validation, which other modules cannot import.

var (
	labelKey = fields.String(func(at *field.Path, s string) *field.Error {
		if len(content.IsLabelKey(s)) > 0 {
			return fields.Invalid(at, s, "must be a label's key, such as app or example.com/zone")
		}
		return nil
	})
	labelValue = fields.String(func(at *field.Path, s string) *field.Error {
		if len(content.IsLabelValue(s)) > 0 {
			return fields.Invalid(at, s, "must be a label's value: letters, digits, -, _ and ., at most 63 characters")
		}
		return nil
	})
	// As KubeVirt does, it takes IPv4 addresses whose numbers have leading zeros.
	ipAddress = fields.String(func(at *field.Path, s string) *field.Error {
		if utilnet.ParseIPSloppy(s) == nil {
			return fields.Invalid(at, s, "must be an IP address")
		}
		return nil
	})
)

// port takes a number or, like a pod's probe, the name of an interface's port.
func port(at *field.Path, value any) *field.Error {
	switch value := value.(type) {
	case int64:
		return fields.Integer(1, 1<<16-1)(at, value)
	case string:
		if len(validation.IsValidPortName(value)) == 0 {
			return nil
		}
	}
	return fields.Invalid(at, value, "must be from 1 to 65535, or the name of one of the interfaces' ports")
}

// LabelMap checks a map of labels.
func LabelMap(at *field.Path, value any) field.ErrorList {
	labels, problems := stringMap(at, value)
	return append(problems, metavalidation.ValidateLabels(labels, at)...)
}

// AnnotationMap checks a map of annotations.
func AnnotationMap(at *field.Path, value any) field.ErrorList {
	annotations, problems := stringMap(at, value)
	return append(problems, apivalidation.ValidateAnnotations(annotations, at)...)
}

func stringMap(at *field.Path, value any) (map[string]string, field.ErrorList) {
	given, ok := value.(map[string]any)
	if !ok {
		return nil, field.ErrorList{fields.WrongType(at, value, "an object")}
	}
	result := make(map[string]string, len(given))
	var problems field.ErrorList
	for _, key := range slices.Sorted(maps.Keys(given)) {
		v := given[key]
		s, ok := v.(string)
		if !ok {
			problems = append(problems, fields.WrongType(at.Key(fields.Excerpt(key)), v, "a string in quotes"))
			continue
		}
		result[key] = s
	}
	return result, problems
}

// as decodes a value into a type of the API. It ignores unknown fields, which the
// table's strict pass reports.
func as[T any](at *field.Path, value any) (*T, field.ErrorList) {
	result := new(T)
	text, err := json.Marshal(value)
	if err == nil {
		err = kjson.UnmarshalCaseSensitivePreserveInts(text, result)
	}
	if err != nil {
		reason := strings.TrimPrefix(fields.Excerpt(err.Error()), "json: ")
		return nil, field.ErrorList{fields.Invalid(at, field.OmitValueType{}, "%s", reason)}
	}
	return result, nil
}

// LabelSelector checks a label selector.
func LabelSelector(at *field.Path, value any) field.ErrorList {
	s, problems := as[metav1.LabelSelector](at, value)
	if len(problems) > 0 {
		return problems
	}
	return metavalidation.ValidateLabelSelector(s, metavalidation.LabelSelectorValidationOptions{}, at)
}

// NodeRequirements checks a list of node selector requirements.
func NodeRequirements(at *field.Path, value any) field.ErrorList {
	all, problems := as[[]corev1.NodeSelectorRequirement](at, value)
	if len(problems) > 0 {
		return problems
	}
	for i, r := range *all {
		problems = append(problems, nodeRequirement(at.Index(i), r)...)
	}
	return problems
}

func affinity(at *field.Path, value any) field.ErrorList {
	a, problems := as[corev1.Affinity](at, value)
	if len(problems) > 0 {
		return problems
	}
	return checkAffinity(at, a)
}
