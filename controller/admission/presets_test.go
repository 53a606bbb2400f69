package admission_test

import (
	"path/filepath"
	"strings"
	"testing"

	"gotest.tools/v3/golden"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/yaml"

	"github.com/nodevirt/nodevirt/controller/admission"
)

// TestPresets: of each file in testdata/presets the last object is what becomes of
// it where the others, which are presets, are there: what it is taken as, or why it
// is refused.
func TestPresets(t *testing.T) {
	for path, text := range files(t, "testdata/presets") {
		t.Run(path, func(t *testing.T) {
			all := strings.Split(text, "---\n")
			var presets []unstructured.Unstructured
			for _, text := range all[:len(all)-1] {
				var o unstructured.Unstructured
				if err := o.UnmarshalJSON(manifest(t, text, "")); err != nil {
					t.Fatal(err)
				}
				presets = append(presets, o)
			}
			r := newRig(t, presets...)
			given := manifest(t, all[len(all)-1], "")
			name := "presets/" + strings.TrimSuffix(filepath.Base(path), ".yaml") + ".golden"
			if answer := r.ask(t, admission.PathDefault, given, nil); !answer.Allowed {
				golden.Assert(t, refusal(t, answer)+"\n", name)
				return
			}
			object := r.defaulted(t, given, nil)
			shown, err := yaml.JSONToYAML(object)
			if err != nil {
				t.Fatal(err)
			}
			golden.Assert(t, string(shown), name)
			if answer := r.ask(t, admission.PathValidate, object, nil); !answer.Allowed {
				t.Errorf("refused after that: %s", answer.Result.Message)
			}
			// The same manifest again is no change, and an instance needs no presets any more.
			if strings.Contains(all[len(all)-1], "kind: VirtualMachineInstance\n") {
				r = newRig(t)
			}
			if again := r.defaulted(t, withMetadata(t, given, object), object); string(again) != string(object) {
				t.Errorf("applied again: %s", again)
			}
		})
	}
}
