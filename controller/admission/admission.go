package admission

import (
	"context"
	"errors"
	"fmt"
	"net/http"

	admissionv1 "k8s.io/api/admission/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"

	"github.com/nodevirt/nodevirt/controller/config"
	"github.com/nodevirt/nodevirt/controller/pages"
	"github.com/nodevirt/nodevirt/shim/fields"
	"github.com/nodevirt/nodevirt/tracing"
)

// Group and Version are those of the API that the webhooks are served as. The API
// server is its only user.
const (
	Group   = "admission.nodevirt.io"
	Version = "v1"
)

// The paths that the webhook configurations in deploy/ name.
const (
	PathDefault  = "/apis/" + Group + "/" + Version + "/default"
	PathValidate = "/apis/" + Group + "/" + Version + "/validate"
)

// Rules are what a kind adds to the admission of its objects. Only Check is required.
type Rules struct {
	// Instance says that the object is itself an instance: presets change it.
	Instance bool
	// Within is the way from the object's spec to the spec that has the template of
	// instances; empty for the object's spec.
	Within []string
	// Cached is the version in which the controller keeps objects of the kind in memory; empty for a kind that it does not
	// keep. Package kinds sets it.
	Cached schema.GroupVersion
	// Finalizer is set on new objects, unless it is empty. The reconciler would do
	// so too, with a separate request for each object.
	Finalizer string
	// Labels returns the labels of a new object that is sound; nil for a kind without.
	Labels func(*Review) map[string]string
	// Check returns what is wrong with the object by itself.
	Check func(*Review) field.ErrorList
	// CheckUpdate returns what is wrong with the change of a sound object.
	CheckUpdate func(*Review) field.ErrorList
	// CheckTypes returns what is wrong with a sound object together with the objects that it names.
	CheckTypes func(context.Context, client.Reader, *Review) (field.ErrorList, error)
	// Infer changes an object, which need not be sound, by what others say, and returns what is wrong with what it asks
	// for.
	Infer func(context.Context, client.Reader, *Review) (field.ErrorList, error)
	// Default fills the defaults into the spec of a sound object. It changes nothing
	// that is set, and applied again it changes nothing.
	Default func(r *Review, spec Tree)
	// Presets returns the part of the object that presets apply to.
	Presets func(*Review) (Subject, bool)
}

// Webhooks decide on the objects of some kinds.
type Webhooks struct {
	// Kinds are the rules by the kinds' names.
	Kinds map[string]Rules
	// Presets lists the presets of a namespace.
	Presets Presets
	// Controller is the controller's own user; "" for none.
	Controller string
	// Live reads the objects that a checked one names; the reader must not be behind.
	Live client.Reader
	// Evictions decides on the pods of instances.
	Evictions Evictions
	// Uploads decides on PVCs for uploads.
	Uploads Uploads
	// Config is the cluster's configuration; it must not be behind.
	Config config.Source
	// Tracing traces reviews; nil for none.
	Tracing *tracing.Tracing
}

// fillIn answers with the defaults of unset fields. It refuses what validate
// refuses: the API server checks an object against its schema between the two
// webhooks, and would report only some of the problems, in its own words.
func (w Webhooks) fillIn(ctx context.Context, request admission.Request) admission.Response {
	r, refusal := w.read(request)
	if refusal != nil {
		return *refusal
	}
	if r.untouched() {
		return admission.Allowed("")
	}
	problems, err := w.prepare(ctx, r)
	if err == nil && len(problems) == 0 {
		problems, err = r.applyPresets(ctx, w.Presets)
	}
	if err != nil {
		return admission.Errored(http.StatusInternalServerError, err)
	}
	if len(problems) == 0 {
		problems = w.check(r)
	}
	if len(problems) > 0 {
		return r.refuse(problems)
	}
	if err := r.setDefaults(); err != nil {
		return admission.Errored(http.StatusInternalServerError, err)
	}
	r.setTrace(ctx)
	return r.patch()
}

// validate refuses what is wrong with an object, and changes that can't be made.
func (w Webhooks) validate(ctx context.Context, request admission.Request) admission.Response {
	r, refusal := w.read(request)
	if refusal != nil {
		return *refusal
	}
	if r.untouched() {
		return admission.Allowed("")
	}
	problems, err := w.prepare(ctx, r)
	if err == nil && len(problems) == 0 && !r.rules.Instance { // the first webhook has applied them to an instance
		problems, err = r.applyPresets(ctx, w.Presets)
	}
	if err != nil {
		return admission.Errored(http.StatusInternalServerError, err)
	}
	if len(problems) == 0 {
		problems = w.check(r)
	}
	if len(problems) == 0 && r.Old != nil && r.rules.CheckUpdate != nil {
		problems = r.rules.CheckUpdate(r)
	}
	if len(problems) == 0 && r.rules.CheckTypes != nil {
		problems, err = r.rules.CheckTypes(ctx, w.Live, r)
		if errors.Is(err, pages.ErrTooMany) {
			return r.refuse(field.ErrorList{field.Forbidden(field.NewPath("metadata", "namespace"), err.Error())})
		}
		if err != nil {
			return admission.Errored(http.StatusInternalServerError, err)
		}
	}
	if len(problems) == 0 {
		if problems, err = w.checkRoom(ctx, r); err != nil {
			return admission.Errored(http.StatusInternalServerError, err)
		}
	}
	if len(problems) > 0 {
		return r.refuse(problems)
	}
	return admission.Allowed("").WithWarnings(r.warnings()...)
}

// read decodes a request. The response is not nil if it is already decided.
func (w Webhooks) read(request admission.Request) (*Review, *admission.Response) {
	if request.Operation != admissionv1.Create && request.Operation != admissionv1.Update {
		answer := admission.Allowed("")
		return nil, &answer
	}
	for _, object := range [][]byte{request.Object.Raw, request.OldObject.Raw} {
		if len(object) > maxObject {
			answer := tooLarge()
			return nil, &answer
		}
	}
	r, err := newReview(request, w.Kinds)
	if err != nil {
		answer := admission.Errored(http.StatusBadRequest, fmt.Errorf("read the request: %w", err))
		return nil, &answer
	}
	return r, nil
}

// prepare reads the configuration, and changes the object as its kind's rules say: not at all, after the first webhook.
func (w Webhooks) prepare(ctx context.Context, r *Review) (field.ErrorList, error) {
	var err error
	if r.Config, err = w.Config.Read(ctx); err != nil {
		return nil, err
	}
	return r.infer(ctx, w.Live)
}

// check returns what is wrong with the object by itself, and in this cluster.
func (w Webhooks) check(r *Review) field.ErrorList {
	problems := append(r.checkTop(), r.rules.Check(r)...)
	if r.VMI != nil {
		var at *field.Path
		if !r.rules.Instance {
			at = r.template()
		}
		problems = append(problems, r.checkMemory()...)
		problems = append(problems, r.Config.Check(at.Child("spec"), r.VMI)...)
		problems = append(problems, r.Config.Gates().CheckAnnotations(at.Child("metadata", "annotations"), r.Annotations)...)
	}
	return problems[:min(len(problems), fields.MaxFound)]
}
