package admission

import (
	"encoding/json"
	"fmt"
	"reflect"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"
	kubevirt "kubevirt.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"
	kjson "sigs.k8s.io/json"
)

const (
	kindVM  = "VirtualMachine"
	kindVMI = "VirtualMachineInstance"
	kindSet = "VirtualMachineInstanceReplicaSet"

	kindInstancetype        = "VirtualMachineInstancetype"
	kindClusterInstancetype = "VirtualMachineClusterInstancetype"
	kindPreference          = "VirtualMachinePreference"
	kindClusterPreference   = "VirtualMachineClusterPreference"

	kindPreset = "VirtualMachineInstancePreset"
)

// checks are what finds out what is wrong with an object of a kind by itself.
func checks() map[string]func(*review) field.ErrorList {
	return map[string]func(*review) field.ErrorList{
		kindVM:                  (*review).checkVM,
		kindVMI:                 (*review).checkVMI,
		kindSet:                 (*review).checkReplicaSet,
		kindInstancetype:        (*review).checkInstancetype,
		kindClusterInstancetype: (*review).checkInstancetype,
		kindPreset:              (*review).checkPreset,
		kindPreference:          (*review).checkPreference,
		kindClusterPreference:   (*review).checkPreference,
	}
}

// review is one object to decide on.
type review struct {
	request admission.Request
	// object and old are decoded JSON; old is nil on creation.
	object, old map[string]any
	meta        metav1.ObjectMeta
	// vmi is the spec of the machine, once it was found to be sound.
	vmi *kubevirt.VirtualMachineInstanceSpec
	// presets are the names of those that were applied, merged is the spec of an
	// object with a template after that; nil if it was not done.
	presets []string
	merged  map[string]any
}

// spec is what is to be checked.
func (r *review) spec() any {
	if r.merged != nil {
		return r.merged
	}
	return r.object["spec"]
}

func newReview(request admission.Request) (*review, error) {
	if _, ok := checks()[request.Kind.Kind]; !ok {
		return nil, fmt.Errorf("%s is none of the kinds that are admitted here", request.Kind.Kind)
	}
	r := &review{request: request}
	if err := kjson.UnmarshalCaseSensitivePreserveInts(request.Object.Raw, &r.object); err != nil {
		return nil, fmt.Errorf("decode object: %w", err)
	}
	var object struct {
		Metadata metav1.ObjectMeta `json:"metadata"`
	}
	if err := json.Unmarshal(request.Object.Raw, &object); err != nil {
		return nil, fmt.Errorf("decode metadata: %w", err)
	}
	r.meta = object.Metadata
	if len(request.OldObject.Raw) == 0 {
		return r, nil
	}
	if err := kjson.UnmarshalCaseSensitivePreserveInts(request.OldObject.Raw, &r.old); err != nil {
		return nil, fmt.Errorf("decode old object: %w", err)
	}
	return r, nil
}

// untouched tells whether an update leaves alone all that is checked. An object
// that was taken once can then always lose its finalizers, though what it says
// may not be supported any more.
func (r *review) untouched() bool {
	if r.old == nil {
		return false
	}
	return reflect.DeepEqual(r.object["spec"], r.old["spec"]) &&
		reflect.DeepEqual(annotations(r.object), annotations(r.old))
}

func annotations(object map[string]any) any {
	meta, _ := object["metadata"].(map[string]any)
	return meta["annotations"]
}

// checkTop looks for fields beside spec: the API server keeps them for this, or
// else they would be dropped in silence.
func (r *review) checkTop() field.ErrorList {
	var problems field.ErrorList
	for key := range r.object {
		switch key {
		case "apiVersion", "kind", "metadata", "spec", "status":
		default:
			problems = append(problems, field.Forbidden(field.NewPath(key), "unknown field"))
		}
	}
	return problems
}
