package admission

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"

	admissionv1 "k8s.io/api/admission/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apiserver/pkg/authentication/user"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"

	"github.com/nodevirt/nodevirt/controller/aggregated"
)

// Bounds of reviews. A review needs up to 40 times the memory of its object.
const (
	// maxObject bounds an object, in bytes of JSON with its managed fields.
	maxObject = 512 << 10
	// maxReview bounds a request: two objects, and what describes them.
	maxReview = 2*maxObject + 128<<10
	// maxDiscarded bounds what is read of a longer request, so that the API server
	// reads the answer: it sends at most two objects of 3 MiB.
	maxDiscarded = 8 << 20
	// maxReviews bounds the reviews at a time. The others wait.
	maxReviews = 4
)

// Handler serves the webhooks, and the discovery of their group. Caller returns the
// user of a request. Only the API server receives an answer: reviews contain
// presets, whatever namespace a request names.
func (w Webhooks) Handler(caller func(*http.Request) (user.Info, error)) http.Handler {
	slots, tracer := make(chan struct{}, maxReviews), w.Tracing
	serve := func(decide admission.HandlerFunc) http.Handler {
		hook := &admission.Webhook{Handler: decide}
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if err := authorize(r, caller); err != nil {
				aggregated.Refuse(w, err)
				return
			}
			select {
			case slots <- struct{}{}:
			case <-r.Context().Done():
				return
			}
			defer func() { <-slots }()
			bounded(w, r.WithContext(tracer.FromRequest(r)), hook) //nolint:contextcheck // it is the request's, with a trace
		})
	}
	mux := http.NewServeMux()
	mux.Handle("POST "+PathDefault, serve(w.traced("default", w.fillIn)))
	mux.Handle("POST "+PathValidate, serve(w.traced("validate", w.validate)))
	mux.Handle("POST "+PathEvict, serve(w.evict))
	mux.HandleFunc("GET /apis/"+Group+"/"+Version, func(w http.ResponseWriter, _ *http.Request) {
		aggregated.Reply(w, http.StatusOK, metav1.APIResourceList{
			TypeMeta:     metav1.TypeMeta{Kind: "APIResourceList", APIVersion: "v1"},
			GroupVersion: Group + "/" + Version, APIResources: []metav1.APIResource{},
		})
	})
	return mux
}

// authorize refuses every user except the API server itself.
func authorize(r *http.Request, caller func(*http.Request) (user.Info, error)) error {
	u, err := caller(r)
	if err != nil {
		return apierrors.NewUnauthorized(err.Error())
	}
	if u.GetName() != user.APIServerUser {
		return apierrors.NewForbidden(schema.GroupResource{Group: Group, Resource: "reviews"}, "",
			fmt.Errorf("user %q is not the API server", u.GetName()))
	}
	return nil
}

// bounded passes a request on, unless it is too large.
func bounded(w http.ResponseWriter, r *http.Request, hook http.Handler) {
	body, err := io.ReadAll(io.LimitReader(r.Body, maxReview+1))
	if err != nil {
		aggregated.Refuse(w, apierrors.NewBadRequest("read the review: "+err.Error()))
		return
	}
	if len(body) <= maxReview {
		r.Body = io.NopCloser(bytes.NewReader(body))
		hook.ServeHTTP(w, r)
		return
	}
	uid, err := reviewUID(body)
	if err != nil {
		aggregated.Refuse(w, apierrors.NewBadRequest("read the review: "+err.Error()))
		return
	}
	_, _ = io.CopyN(io.Discard, r.Body, maxDiscarded)
	answer := tooLarge()
	answer.UID = uid
	aggregated.Reply(w, http.StatusOK, admissionv1.AdmissionReview{
		TypeMeta: metav1.TypeMeta{APIVersion: admissionv1.SchemeGroupVersion.String(), Kind: "AdmissionReview"},
		Response: &answer.AdmissionResponse,
	})
}

func tooLarge() admission.Response {
	answer := admission.Denied("")
	answer.Result = &metav1.Status{
		Status: metav1.StatusFailure, Code: http.StatusRequestEntityTooLarge, Reason: metav1.StatusReasonRequestEntityTooLarge,
		Message: fmt.Sprintf("object larger than %d KiB; move large values, such as cloud-init user data, "+
			"to Secrets and refer to these", maxObject>>10),
	}
	return answer
}

// reviewUID returns request.uid from the beginning of a review. The API server
// writes it before the objects.
func reviewUID(text []byte) (types.UID, error) {
	decoder := json.NewDecoder(bytes.NewReader(text))
	var path []string
	for {
		token, err := decoder.Token()
		if err != nil {
			return "", fmt.Errorf("find request.uid: %w", err)
		}
		switch {
		case token == json.Delim('{') && len(path) <= 1:
			path = append(path, "")
			continue
		case len(path) == 0 || token == json.Delim('}'):
			return "", errors.New("find request.uid: no such field before the objects")
		}
		key, _ := token.(string)
		if len(path) == 2 && key == "uid" {
			var uid types.UID
			return uid, decoder.Decode(&uid)
		}
		if len(path) == 1 && key == "request" {
			continue
		}
		var skipped json.RawMessage
		if err := decoder.Decode(&skipped); err != nil {
			return "", fmt.Errorf("find request.uid: %w", err)
		}
	}
}
