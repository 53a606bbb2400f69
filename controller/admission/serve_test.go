package admission_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"runtime"
	"strings"
	"sync"
	"testing"

	"gotest.tools/v3/assert"
	admissionv1 "k8s.io/api/admission/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	apiruntime "k8s.io/apimachinery/pkg/runtime"

	"github.com/nodevirt/nodevirt/controller/admission"
)

// unknownKeys returns a VMI of about a size with as many unknown keys as fit.
func unknownKeys(size int) []byte {
	var b bytes.Buffer
	b.WriteString(`{"apiVersion":"kubevirt.io/v1","kind":"VirtualMachineInstance","metadata":{"name":"a","namespace":"b"},"spec":{`)
	for i := 0; b.Len() < size; i++ {
		fmt.Fprintf(&b, `"x%d":0,`, i)
	}
	b.WriteString(`"y":0}}`)
	return b.Bytes()
}

// TestTooLarge: an object above 512 KiB is refused, with a review of any size, and
// one below it with the first 50 of its problems.
func TestTooLarge(t *testing.T) {
	r := newRig(t)
	for _, size := range []int{513 << 10, 2 << 20, 3 << 20} {
		for _, path := range []string{admission.PathDefault, admission.PathValidate} {
			object := unknownKeys(size)
			for _, old := range [][]byte{nil, object} {
				answer := r.ask(t, path, object, old)
				if answer.Allowed || answer.UID != "1" || answer.Result.Code != http.StatusRequestEntityTooLarge ||
					!strings.Contains(answer.Result.Message, "larger than 512 KiB") {
					t.Errorf("%s, %d bytes: %+v", path, size, answer)
				}
			}
		}
	}
	answer := r.ask(t, admission.PathDefault, unknownKeys(500<<10), nil)
	assert.Assert(t, !answer.Allowed)
	assert.Assert(t, len(answer.Result.Details.Causes) == 50, "%d causes", len(answer.Result.Details.Causes))
	assert.Assert(t, strings.HasPrefix(answer.Result.Message, "at least 200 problems:\n"), answer.Result.Message[:100])
	assert.Assert(t, len(answer.Result.Message) < 10_000)
}

// TestManyAtOnce: reviews of the largest objects, which have nothing but unknown
// keys, allocate bounded memory.
func TestManyAtOnce(t *testing.T) {
	const rounds = 20
	r := newRig(t)
	object := unknownKeys(500 << 10)
	var before, after runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&before)
	var all sync.WaitGroup
	for range rounds {
		all.Go(func() {
			if answer := r.ask(t, admission.PathDefault, object, nil); answer.Allowed {
				t.Error("an object with unknown fields is allowed")
			}
		})
	}
	all.Wait()
	runtime.ReadMemStats(&after)
	each := (after.TotalAlloc - before.TotalAlloc) / rounds >> 10
	t.Logf("%d KiB allocated for each review", each)
	if each > 40<<10 {
		t.Errorf("a review allocates %d KiB", each)
	}
}

// TestOnlyAPIServer: another user receives nothing, least of all presets.
func TestOnlyAPIServer(t *testing.T) {
	preset := unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "kubevirt.io/v1", "kind": "VirtualMachineInstancePreset",
		"metadata": map[string]any{"name": "hidden", "namespace": "other"},
		"spec": map[string]any{
			"selector": map[string]any{}, "domain": map[string]any{"cpu": map[string]any{"cores": int64(7)}},
		},
	}}
	r := newRig(t, preset)
	object := `{"apiVersion":"kubevirt.io/v1","kind":"VirtualMachineInstance","metadata":{"name":"a","namespace":"other"},` +
		`"spec":{"domain":{"memory":{"guest":"64Mi"},"devices":{}}}}`
	review, err := json.Marshal(admissionv1.AdmissionReview{
		TypeMeta: metav1.TypeMeta{APIVersion: "admission.k8s.io/v1", Kind: "AdmissionReview"},
		Request: &admissionv1.AdmissionRequest{
			UID: "1", Kind: metav1.GroupVersionKind{Group: "kubevirt.io", Version: "v1", Kind: "VirtualMachineInstance"},
			Namespace: "other", Operation: admissionv1.Create, Object: apiruntime.RawExtension{Raw: []byte(object)},
		},
	})
	assert.NilError(t, err)
	for user, want := range map[string]int{"": http.StatusOK, "ann": http.StatusForbidden, "system:kube-aggregator": http.StatusForbidden} {
		for _, path := range []string{admission.PathDefault, admission.PathValidate} {
			request, err := http.NewRequestWithContext(t.Context(), http.MethodPost, r.url+path, bytes.NewReader(review))
			assert.NilError(t, err)
			request.Header.Set("Content-Type", "application/json")
			request.Header.Set("X-Remote-User", user)
			reply, err := http.DefaultClient.Do(request)
			assert.NilError(t, err)
			text, err := io.ReadAll(reply.Body)
			assert.NilError(t, err)
			assert.NilError(t, reply.Body.Close())
			if reply.StatusCode != want || want != http.StatusOK && (bytes.Contains(text, []byte("hidden")) || bytes.Contains(text, []byte("patch"))) {
				t.Errorf("%s of %q: %d %s", path, user, reply.StatusCode, text)
			}
		}
	}
}
