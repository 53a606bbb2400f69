package admission_test

import (
	"encoding/json"
	"errors"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"gotest.tools/v3/golden"
	"sigs.k8s.io/yaml"

	"github.com/nodevirt/nodevirt/controller/admission"
)

// TestTaken: the manifests in testdata/taken are taken, with the defaults that
// stand in the files beside them.
func TestTaken(t *testing.T) {
	r := newRig(t)
	for path, text := range files(t, "testdata/taken") {
		t.Run(path, func(t *testing.T) {
			given := manifest(t, text, "")
			object := r.defaulted(t, given, nil)
			shown, err := yaml.JSONToYAML(object)
			if err != nil {
				t.Fatal(err)
			}
			golden.Assert(t, withoutChance(shown, given), "taken/"+strings.TrimSuffix(filepath.Base(path), ".yaml")+".golden")
			if answer := r.ask(t, admission.PathValidate, object, nil); !answer.Allowed {
				t.Errorf("refused with its defaults: %s", answer.Result.Message)
			}
			if again := r.defaulted(t, object, nil); string(again) != string(object) {
				t.Errorf("a second time made %s of %s", again, object)
			}
			// The same manifest again is no change, though the defaults are missing in
			// it: the client that applies it keeps those of the metadata.
			if again := r.defaulted(t, withMetadata(t, given, object), object); string(again) != string(object) {
				t.Errorf("applied again: %s", again)
			}
		})
	}
}

// withoutChance returns a manifest as text, without the UUID of a VM that was given without
// one: that is another each time.
func withoutChance(shown, given []byte) string {
	if strings.Contains(string(given), `"uuid"`) {
		return string(shown)
	}
	return regexp.MustCompile(`(\n +uuid: )[0-9a-f-]{36}\n`).ReplaceAllString(string(shown), "${1}ANY\n")
}

// withMetadata returns a manifest with the metadata of another.
func withMetadata(t *testing.T, given, of []byte) []byte {
	t.Helper()
	var object, other map[string]json.RawMessage
	if err := errors.Join(json.Unmarshal(given, &object), json.Unmarshal(of, &other)); err != nil {
		t.Fatal(err)
	}
	object["metadata"] = other["metadata"]
	text, err := json.Marshal(object)
	if err != nil {
		t.Fatal(err)
	}
	return text
}
