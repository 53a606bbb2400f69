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

// TestPresets: the last object of each file in testdata/presets is the result of a
// request in a namespace with the file's presets: the object as admitted, or the
// refusal.
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
			golden.Assert(t, withoutChance(shown, given), name)
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

// TestPresetsAndStrangeMachines: a preset is merged before the instance is checked,
// which may be anything. It is refused for what it is.
func TestPresetsAndStrangeMachines(t *testing.T) {
	r := newRig(t, unstructured.Unstructured{Object: map[string]any{
		"metadata": map[string]any{"name": "preset"},
		"spec": map[string]any{"selector": map[string]any{}, "domain": map[string]any{
			"devices":   map[string]any{"disks": []any{map[string]any{"name": "root", "disk": map[string]any{"bus": "virtio"}}}},
			"firmware":  map[string]any{"serial": "x"},
			"resources": map[string]any{"requests": map[string]any{"cpu": int64(1)}},
		}},
	}})
	for spec, want := range map[string]string{
		`7`:                           "spec: must be an object",
		`{"domain": []}`:              "spec.domain: must be an object, not []",
		`{"domain": null}`:            "spec.domain.memory.guest: Required",
		`{"domain": {"firmware": 7}}`: "spec.domain.firmware: must be an object, not 7",
		`{"domain": {"devices": {"disks": [{"name": []}, null, 7]}}}`: "spec.domain.devices.disks[0].name: must be a string, not []",
		`{"domain": {"resources": {"requests": ["cpu"]}}}`:            "spec.domain.resources.requests: must be an object",
	} {
		for kind, object := range map[string]string{
			"VirtualMachineInstance": spec, "VirtualMachine": `{"running": true, "template": {"spec": ` + spec + `}}`,
		} {
			answer := r.ask(t, admission.PathDefault, []byte(`{"apiVersion": "kubevirt.io/v1", "kind": "`+kind+
				`", "metadata": {"name": "x"}, "spec": `+object+`}`), nil)
			at := want
			if kind == "VirtualMachine" && strings.HasSuffix(want, "Required") {
				at = "spec.template.spec.domain.devices.disks[0].name: Invalid"
			} else if kind == "VirtualMachine" {
				at = strings.Replace(want, "spec", "spec.template.spec", 1)
			}
			if answer.Allowed || !strings.Contains(answer.Result.Message, at) {
				t.Errorf("%s %s: %+v, not %s", kind, spec, answer.Result, want)
			}
		}
	}
}
