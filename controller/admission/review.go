package admission

import (
	"encoding/json"
	"fmt"
	"maps"
	"reflect"
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"
	kubevirt "kubevirt.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"
	kjson "sigs.k8s.io/json"

	"github.com/nodevirt/nodevirt/controller/config"
	"github.com/nodevirt/nodevirt/controller/decode"
	"github.com/nodevirt/nodevirt/shim/fields"
)

// Review is one object that a webhook decides on.
type Review struct {
	// Object and Old are decoded JSON. Old is nil when the object is created.
	Object, Old Tree
	Meta        metav1.ObjectMeta
	// VMI is the spec of the instance, or of the template, once a check has found
	// it to be sound; nil for kinds that have neither.
	VMI *kubevirt.VirtualMachineInstanceSpec
	// Annotations are those of the instance or of the template that has VMI.
	Annotations map[string]string
	// Config is the cluster's configuration.
	Config config.Config

	request admission.Request
	rules   Rules
	// presets are the names of those that were applied. Merged is the spec of an
	// object with a template after that; nil if no preset was looked for.
	presets []string
	merged  Tree
}

// Spec returns the spec to check, which has what presets add to a template.
func (r *Review) Spec() any {
	if r.merged != nil {
		return r.merged
	}
	return r.Object["spec"]
}

// Decode reads the object into a value of the API.
func (r *Review) Decode(into client.Object) error {
	if err := json.Unmarshal(r.request.Object.Raw, into); err != nil {
		return fmt.Errorf("decode object: %w", err)
	}
	return nil
}

func newReview(request admission.Request, kinds map[string]Rules) (*Review, error) {
	rules, ok := kinds[request.Kind.Kind]
	if !ok {
		return nil, fmt.Errorf("kind %s: not one of those that this webhook decides on", request.Kind.Kind)
	}
	if err := decode.Check(request.Object.Raw); err != nil {
		return nil, fmt.Errorf("decode object: %w", err)
	}
	r := &Review{request: request, rules: rules}
	if err := kjson.UnmarshalCaseSensitivePreserveInts(request.Object.Raw, &r.Object); err != nil {
		return nil, fmt.Errorf("decode object: %w", err)
	}
	var object struct {
		Metadata metav1.ObjectMeta `json:"metadata"`
	}
	if err := json.Unmarshal(request.Object.Raw, &object); err != nil {
		return nil, fmt.Errorf("decode metadata: %w", err)
	}
	r.Meta = object.Metadata
	if len(request.OldObject.Raw) == 0 {
		return r, nil
	}
	if err := kjson.UnmarshalCaseSensitivePreserveInts(request.OldObject.Raw, &r.Old); err != nil {
		return nil, fmt.Errorf("decode old object: %w", err)
	}
	return r, nil
}

// untouched reports whether an update changes nothing that is checked. Finalizers
// of an existing object can always be removed, even if a newer controller would
// refuse the object.
func (r *Review) untouched() bool {
	if r.Old == nil {
		return false
	}
	return reflect.DeepEqual(r.Object["spec"], r.Old["spec"]) &&
		reflect.DeepEqual(annotations(r.Object), annotations(r.Old))
}

func annotations(object map[string]any) any {
	meta, _ := object["metadata"].(map[string]any)
	return meta["annotations"]
}

// checkTop refuses fields beside spec. The CRDs make the API server keep unknown
// fields for this check, since it would drop them silently otherwise.
func (r *Review) checkTop() field.ErrorList {
	var problems field.ErrorList
	for _, key := range slices.Sorted(maps.Keys(r.Object)) {
		if len(problems) == fields.MaxFound {
			break
		}
		switch key {
		case "apiVersion", "kind", "metadata", "spec", "status":
		default:
			problems = append(problems, field.Forbidden(field.NewPath(key), "unknown field"))
		}
	}
	return problems
}
