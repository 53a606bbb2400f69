package admission_test

import (
	"bytes"
	"encoding/json"
	"testing"

	jsonpatch "github.com/evanphx/json-patch/v5"
	"gotest.tools/v3/assert"

	"github.com/nodevirt/nodevirt/controller/admission"
)

// FuzzReview asks the webhooks about any object, new or changed. Each review has an answer, a refusal says why, and defaults are
// filled in once: what has them stays as it is.
func FuzzReview(f *testing.F) {
	r := newRig(f)
	for _, dir := range []string{"testdata/taken", "testdata/refused", "testdata/switched", "testdata/presets"} {
		for _, text := range files(f, dir) {
			f.Add(manifest(f, text, ""), []byte(nil))
		}
	}
	vmi := []byte(`{"apiVersion":"kubevirt.io/v1","kind":"VirtualMachineInstance","metadata":{"name":"a","namespace":"b"},"spec":{"domain":{"devices":{}}}}`)
	f.Add(vmi, vmi)
	f.Add([]byte(`{"apiVersion":"kubevirt.io/v1","kind":"VirtualMachine","metadata":{"name":"a"},"spec":{"running":true,"template":{"spec":[]}}}`), []byte(`{"kind":"VirtualMachine","spec":7}`))
	f.Fuzz(func(t *testing.T, object, old []byte) {
		if !isObject(object) || len(old) > 0 && !isObject(old) {
			return // the API server decodes it before
		}
		if len(old) == 0 {
			old = nil
		}
		answer := r.ask(t, admission.PathDefault, object, old)
		if !answer.Allowed {
			assert.Assert(t, answer.Result.Message != "", "a refusal without words")
			return
		}
		once := patched(t, object, answer.Patch)
		if again := r.ask(t, admission.PathDefault, once, old); again.Allowed {
			assert.Assert(t, bytes.Equal(sorted(t, patched(t, once, again.Patch)), sorted(t, once)), "defaults change what has them")
		}
		if answer := r.ask(t, admission.PathValidate, once, old); !answer.Allowed {
			assert.Assert(t, answer.Result.Message != "", "a refusal without words")
		}
	})
}

// isObject reports whether a text is what an API server sends: an object of the API with a kind.
func isObject(text []byte) bool {
	var object struct {
		APIVersion, Kind string
		Metadata         struct{ Name, Namespace string }
	}
	return json.Unmarshal(text, &object) == nil && object.Kind != ""
}

func patched(t *testing.T, object, patch []byte) []byte {
	t.Helper()
	if len(patch) == 0 {
		return object
	}
	decoded, err := jsonpatch.DecodePatch(patch)
	assert.NilError(t, err)
	changed, err := decoded.Apply(object)
	assert.NilError(t, err)
	return changed
}
