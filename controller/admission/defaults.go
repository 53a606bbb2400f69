package admission

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strconv"

	"k8s.io/apimachinery/pkg/util/validation/field"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"

	"github.com/nodevirt/nodevirt/shim/vmspec"
)

// Tree is decoded JSON.
type Tree = map[string]any

// infer changes the object as its kind's rules say.
func (r *Review) infer(ctx context.Context, live client.Reader) (field.ErrorList, error) {
	if r.rules.Infer == nil {
		return nil, nil
	}
	return r.rules.Infer(ctx, live, r)
}

// setDefaults writes the defaults into the object.
func (r *Review) setDefaults() error {
	spec, ok := storable(r.Object["spec"]).(Tree)
	if !ok {
		return fmt.Errorf("%s %s: no spec after it was checked", r.request.Kind.Kind, r.request.Name)
	}
	r.Object["spec"] = spec
	if r.Old == nil {
		r.setFinalizer()
		r.setLabels()
	}
	if r.rules.Default != nil {
		r.rules.Default(r, spec)
	}
	return nil
}

func (r *Review) setFinalizer() {
	own := r.rules.Finalizer
	if own == "" || slices.Contains(r.Meta.Finalizers, own) {
		return
	}
	metadata := Child(r.Object, "metadata")
	all, _ := metadata["finalizers"].([]any)
	metadata["finalizers"] = append(all, own)
}

func (r *Review) setLabels() {
	if r.rules.Labels == nil {
		return
	}
	for key, value := range r.rules.Labels(r) {
		Child(Child(r.Object, "metadata"), "labels")[key] = value
	}
}

// patch answers with the difference between the request's object and r's.
func (r *Review) patch() admission.Response {
	text, err := json.Marshal(r.Object)
	if err != nil {
		return admission.Errored(http.StatusInternalServerError, fmt.Errorf("encode object: %w", err))
	}
	return admission.PatchResponseFromRaw(r.request.Object.Raw, text)
}

// SetMachine sets the machine type of a VMI's spec: the cluster's, or else nodevirt's default.
func SetMachine(r *Review, spec Tree, vm vmspec.Spec) {
	given := ""
	if r.Old == nil || !r.rules.Instance { // an instance cannot change
		given = r.Config.Machine(vm.Arch())
	}
	SetDefault(Child(Child(spec, "domain"), "machine"), "type", cmp.Or(given, vm.Machine))
}

// SetDevices sets an empty domain.devices, which the schema requires.
func SetDevices(spec any) {
	if spec, ok := spec.(Tree); ok {
		Child(Child(spec, "domain"), "devices")
	}
}

// Child returns the object of a key, and creates it if there is none.
func Child(of Tree, key string) Tree {
	value, ok := of[key].(Tree)
	if !ok {
		value = Tree{}
		of[key] = value
	}
	return value
}

// SetDefault sets a key that is missing, an empty string or the number 0.
func SetDefault(of Tree, key string, value any) {
	switch of[key] {
	case nil, "", int64(0):
		of[key] = value
	}
}

// storable returns a copy that the schema takes: without null, which stands for an
// unset field, and with quantities such as 1.5 as text.
func storable(value any) any {
	switch value := value.(type) {
	case Tree:
		result := make(Tree, len(value))
		for key, v := range value {
			if v != nil {
				result[key] = storable(v)
			}
		}
		return result
	case []any:
		result := make([]any, 0, len(value))
		for _, v := range value {
			if v != nil {
				result = append(result, storable(v))
			}
		}
		return result
	case float64:
		return strconv.FormatFloat(value, 'f', -1, 64)
	}
	return value
}
