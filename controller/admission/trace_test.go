package admission_test

import (
	"bytes"
	"encoding/json"
	"net/http"
	"testing"

	"go.opentelemetry.io/otel/sdk/trace/tracetest"
	admissionv1 "k8s.io/api/admission/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/nodevirt/nodevirt/controller/admission"
	"github.com/nodevirt/nodevirt/tracing"
)

const (
	tracedVMI = `{"apiVersion":"kubevirt.io/v1","kind":"VirtualMachineInstance","metadata":{"name":"web",` +
		`"annotations":{"trace.nodevirt.io/traceparent":"00-0123456789abcdef0123456789abcdef-0123456789abcdef-01"}},` +
		`"spec":{"domain":{"memory":{"guest":"64Mi"},"devices":{"disks":[{"name":"root","disk":{}}]}},` +
		`"volumes":[{"name":"root","containerDisk":{"image":"example.com/fedora:41"}}]}}`
	servers = "00-aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa-bbbbbbbbbbbbbbbb-01"
)

func annotationOf(t *testing.T, object []byte) string {
	t.Helper()
	var meta metav1.PartialObjectMetadata
	if err := json.Unmarshal(object, &meta); err != nil {
		t.Fatal(err)
	}
	return meta.Annotations[tracing.Annotation]
}

// TestTraceOfCreation: a new instance carries the trace of its admission, and not the one that its
// author wrote.
func TestTraceOfCreation(t *testing.T) {
	to := tracetest.NewInMemoryExporter()
	r := newRigIn(t, admission.Webhooks{Tracing: tracing.ForTest(to, 1)})
	made := r.defaulted(t, []byte(tracedVMI), nil)
	spans := to.GetSpans()
	if len(spans) != 1 || spans[0].Name != "admission default" || spans[0].Parent.IsValid() || len(spans[0].Links) > 0 {
		t.Fatalf("spans %+v", spans)
	}
	if got := tracing.TraceID(annotationOf(t, made)); got != spans[0].SpanContext.TraceID().String() {
		t.Errorf("the instance has trace %q", got)
	}
	got := map[string]any{}
	for _, a := range spans[0].Attributes {
		got[string(a.Key)] = a.Value.AsInterface()
	}
	if got["nodevirt.kind"] != "VirtualMachineInstance" || got["nodevirt.name"] != "web" || got["nodevirt.allowed"] != true || len(got) != 4 {
		t.Errorf("attributes %v", got)
	}

	// An update keeps what is there.
	if again := annotationOf(t, r.defaulted(t, made, []byte(tracedVMI))); again != annotationOf(t, made) {
		t.Errorf("after an update: %q", again)
	}
	// An object that makes instances has no trace itself.
	vm := []byte(`{"apiVersion":"kubevirt.io/v1","kind":"VirtualMachine","metadata":{"name":"web"},` +
		`"spec":{"runStrategy":"Always","template":{"spec":{"domain":{"memory":{"guest":"64Mi"},"devices":{}}}}}}`)
	if got := annotationOf(t, r.defaulted(t, vm, nil)); got != "" {
		t.Errorf("a VM has trace %q", got)
	}
	// A refusal is no failure of the webhook.
	to.Reset()
	r.ask(t, admission.PathValidate, []byte(`{"apiVersion":"kubevirt.io/v1","kind":"VirtualMachineInstance","metadata":{"name":"web"},"spec":{}}`), nil)
	if s := to.GetSpans(); len(s) != 1 || s[0].Name != "admission validate" || s[0].Status.Code != 0 {
		t.Errorf("spans %+v", s)
	}
}

// TestTraceOff: without a collector, objects stay as they are.
func TestTraceOff(t *testing.T) {
	made := newRig(t).defaulted(t, []byte(tracedVMI), nil)
	if got, want := annotationOf(t, made), annotationOf(t, []byte(tracedVMI)); got != want {
		t.Errorf("annotation %q, want %q", got, want)
	}
}

// TestTraceOfAPIServer continues the API server's trace, and no other user's.
func TestTraceOfAPIServer(t *testing.T) {
	to := tracetest.NewInMemoryExporter()
	r := newRigIn(t, admission.Webhooks{Tracing: tracing.ForTest(to, 1)})
	review, err := json.Marshal(admissionv1.AdmissionReview{
		TypeMeta: metav1.TypeMeta{APIVersion: "admission.k8s.io/v1", Kind: "AdmissionReview"},
		Request: &admissionv1.AdmissionRequest{
			UID: "1", Kind: metav1.GroupVersionKind{Group: "kubevirt.io", Version: "v1", Kind: "VirtualMachineInstance"},
			Operation: admissionv1.Create, Object: runtime.RawExtension{Raw: []byte(tracedVMI)},
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	for user, want := range map[string]int{"": 1, "ann": 0} {
		to.Reset()
		request, err := http.NewRequestWithContext(t.Context(), http.MethodPost, r.url+admission.PathDefault, bytes.NewReader(review))
		if err != nil {
			t.Fatal(err)
		}
		request.Header.Set("Content-Type", "application/json")
		request.Header.Set("Traceparent", servers)
		request.Header.Set("X-Remote-User", user)
		reply, err := http.DefaultClient.Do(request)
		if err != nil {
			t.Fatal(err)
		}
		if err := reply.Body.Close(); err != nil {
			t.Fatal(err)
		}
		spans := to.GetSpans()
		if len(spans) != want || want == 1 && spans[0].SpanContext.TraceID().String() != tracing.TraceID(servers) {
			t.Errorf("user %q: spans %+v", user, spans)
		}
	}
}
