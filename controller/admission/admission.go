package admission

import (
	"context"
	"fmt"
	"net/http"

	admissionv1 "k8s.io/api/admission/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"sigs.k8s.io/controller-runtime/pkg/webhook"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"
)

// The paths that the webhook configurations in deploy/ name.
const (
	PathDefault  = "/default"
	PathValidate = "/validate"
)

// Register adds the webhooks to a server.
func Register(server webhook.Server, presets Presets) {
	server.Register(PathDefault, &webhook.Admission{Handler: admission.HandlerFunc(presets.fillIn)})
	server.Register(PathValidate, &webhook.Admission{Handler: admission.HandlerFunc(presets.validate)})
}

// fillIn answers with the defaults of what is not said. It refuses as validate
// does: the API server holds an object against its schema in between, and would
// tell of mistakes in words of its own, and of some of them only.
func (p Presets) fillIn(ctx context.Context, request admission.Request) admission.Response {
	r, refusal := read(request)
	if refusal != nil {
		return *refusal
	}
	if r.untouched() {
		return admission.Allowed("")
	}
	problems, err := r.applyPresets(ctx, p)
	if err != nil {
		return admission.Errored(http.StatusInternalServerError, err)
	}
	if len(problems) == 0 {
		problems = r.check()
	}
	if len(problems) > 0 {
		return r.refuse(problems)
	}
	if err := r.setDefaults(); err != nil {
		return admission.Errored(http.StatusInternalServerError, err)
	}
	return r.patch()
}

// validate refuses what is wrong with an object, and changes that can't be made.
func (p Presets) validate(ctx context.Context, request admission.Request) admission.Response {
	r, refusal := read(request)
	if refusal != nil {
		return *refusal
	}
	if r.untouched() {
		return admission.Allowed("")
	}
	var problems field.ErrorList
	if r.request.Kind.Kind != kindVMI { // which has them by now
		var err error
		if problems, err = r.applyPresets(ctx, p); err != nil {
			return admission.Errored(http.StatusInternalServerError, err)
		}
	}
	if len(problems) == 0 {
		problems = r.check()
	}
	if len(problems) == 0 {
		problems = r.checkUpdate()
	}
	if len(problems) > 0 {
		return r.refuse(problems)
	}
	return admission.Allowed("")
}

// read decodes a request; the response is nil if there is something to decide on.
func read(request admission.Request) (*review, *admission.Response) {
	if request.Operation != admissionv1.Create && request.Operation != admissionv1.Update {
		answer := admission.Allowed("")
		return nil, &answer
	}
	r, err := newReview(request)
	if err != nil {
		answer := admission.Errored(http.StatusBadRequest, fmt.Errorf("read the request: %w", err))
		return nil, &answer
	}
	return r, nil
}

// check returns what is wrong with the object by itself.
func (r *review) check() field.ErrorList {
	return append(r.checkTop(), checks()[r.request.Kind.Kind](r)...)
}
