package admission

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
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
	"github.com/nodevirt/nodevirt/internal/bounds"
	"github.com/nodevirt/nodevirt/internal/turns"
)

// Bounds of reviews. A review needs up to 40 times the memory of its object.
const (
	// maxObject bounds an object, in bytes of JSON with its managed fields.
	maxObject = bounds.Object
	// maxReview bounds a request: two objects, and what describes them.
	maxReview = 2*maxObject + 128<<10
	// maxDiscarded bounds what is read of a longer request, so that the API server
	// reads the answer: it sends at most two objects of 3 MiB.
	maxDiscarded = 8 << 20
	// MaxReviews bounds the reviews at a time, and NamespaceReviews those of one namespace. The others wait.
	MaxReviews       = bounds.Reviews
	NamespaceReviews = bounds.NamespaceReviews
	// maxHead bounds what a review has before the objects, in bytes.
	maxHead = 8 << 10
)

// Handler serves the webhooks, and the discovery of their group. Caller returns the
// user of a request. Only the API server receives an answer: reviews contain
// presets, whatever namespace a request names.
func (w Webhooks) Handler(caller func(*http.Request) (user.Info, error)) http.Handler {
	slots, longs, tracer := turns.New("other reviews", MaxReviews, NamespaceReviews), longTurns(), w.Tracing
	serve := func(decide admission.HandlerFunc) http.Handler {
		hook := &admission.Webhook{Handler: decide}
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if err := authorize(r, caller); err != nil {
				aggregated.Refuse(w, err)
				return
			}
			head := bufio.NewReaderSize(r.Body, maxHead)
			namespace := reviewNamespace(head)
			end, err := slots.Take(r.Context(), namespace, func() {})
			if err != nil {
				return // the API server waits no longer
			}
			defer end()
			turn := &long{turns: longs, namespace: namespace}
			defer turn.end()
			ctx := context.WithValue(r.Context(), longKey{}, turn)
			r = r.WithContext(ctx)
			if r.ContentLength < 0 || r.ContentLength > bounds.LongReview {
				if err := takeLong(ctx); err != nil {
					return
				}
			}
			r.Body = struct {
				io.Reader
				io.Closer
			}{head, r.Body}
			bounded(w, r.WithContext(tracer.FromRequest(r)), hook) //nolint:contextcheck // it is the request's, with a trace
		})
	}
	mux := http.NewServeMux()
	mux.Handle("POST "+PathDefault, serve(w.traced("default", w.fillIn)))
	mux.Handle("POST "+PathValidate, serve(w.traced("validate", w.validate)))
	mux.Handle("POST "+PathEvict, serve(w.evict))
	mux.Handle("POST "+PathUpload, serve(w.upload))
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

// reviewNamespace returns the namespace of a review without the objects, which it leaves unread; "" for a review of an
// object without a namespace.
func reviewNamespace(from *bufio.Reader) string {
	text, _ := from.Peek(maxHead) // a short review ends before
	var namespace string
	if err := reviewField(text, "namespace", &namespace); err != nil {
		return ""
	}
	return namespace
}

// reviewUID returns request.uid from the beginning of a review.
func reviewUID(text []byte) (types.UID, error) {
	var uid types.UID
	return uid, reviewField(text, "uid", &uid)
}

// reviewField reads a field of request from the beginning of a review. The API server writes the short ones before the
// objects.
func reviewField(text []byte, name string, into any) error {
	decoder := json.NewDecoder(bytes.NewReader(text))
	var path []string
	for {
		token, err := decoder.Token()
		if err != nil {
			return fmt.Errorf("find request.%s: %w", name, err)
		}
		switch {
		case token == json.Delim('{') && len(path) <= 1:
			path = append(path, "")
			continue
		case len(path) == 0 || token == json.Delim('}'):
			return fmt.Errorf("find request.%s: no such field before the objects", name)
		}
		key, _ := token.(string)
		if len(path) == 2 && key == name {
			return decoder.Decode(into)
		}
		if len(path) == 1 && key == "request" {
			continue
		}
		var skipped json.RawMessage
		if err := decoder.Decode(&skipped); err != nil {
			return fmt.Errorf("find request.%s: %w", name, err)
		}
	}
}
