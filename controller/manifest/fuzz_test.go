package manifest_test

import (
	"encoding/json"
	"os"
	"path/filepath"
	"testing"
	"unicode/utf8"

	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/apimachinery/pkg/util/yaml"
	kjson "sigs.k8s.io/json"

	"github.com/nodevirt/nodevirt/controller/installation"
	"github.com/nodevirt/nodevirt/controller/manifest"
	"github.com/nodevirt/nodevirt/controller/pool"
	"github.com/nodevirt/nodevirt/controller/preset"
	"github.com/nodevirt/nodevirt/controller/replicaset"
	"github.com/nodevirt/nodevirt/controller/vm"
	"github.com/nodevirt/nodevirt/shim/fields"
	"github.com/nodevirt/nodevirt/shim/vmspec"
)

// FuzzManifest gives strangers' specs to admission's checks. What comes through
// can be read again, and a node takes what is the node's of it.
func FuzzManifest(f *testing.F) {
	f.Add(allOfPods)
	f.Add(`{"runStrategy": "Always", "template": {"metadata": {"labels": {"a": "b"}}, "spec": ` + allOfPods + `}}`)
	f.Add(`{"domain": {"devices": {"disks": [{"type": "RegistryDisk:v1alpha", "source": {"name": "x"}}, {"type": 7}, null]}}}`)
	f.Add(`{"replicas": 2, "paused": true, "selector": {"matchLabels": {"a": "b"}, "matchExpressions": [{"key": "a", "operator": "In"}]}}`)
	f.Add(`{"selector": {}, "domain": {"cpu": {"cores": 2}, "devices": {"disks": [{"name": "a"}]}}}`)
	f.Add(`{"configuration": {"migrations": {"bandwidthPerMigration": 0}, "developerConfiguration": {"featureGates": ["A", 1]}, "emulatedMachines": ["pc-[q"]}}`)
	for _, spec := range specsOfAdmission(f) {
		f.Add(spec)
	}
	f.Fuzz(func(t *testing.T, text string) {
		var tree any
		if kjson.UnmarshalCaseSensitivePreserveInts([]byte(text), &tree) != nil {
			return
		}
		root := field.NewPath("spec")
		_, problems := vm.CheckManifest(root, tree)
		checkSentences(t, problems)
		_, problems = replicaset.CheckManifest(root, tree)
		checkSentences(t, problems)
		_, problems = pool.CheckManifest(root, tree)
		checkSentences(t, problems)
		checkSentences(t, preset.CheckManifest(root, tree))
		_, problems = installation.CheckManifest(root, tree)
		checkSentences(t, problems)
		vmi, problems := manifest.CheckVMI(root, tree)
		checkSentences(t, problems)
		if len(problems) > 0 {
			return
		}
		machine, _ := vmspec.Preview(root, vmi)
		if n := machine.CPU.Sockets * machine.CPU.Cores * machine.CPU.Threads; n < 1 || n > 240 {
			t.Errorf("%d vCPUs", n)
		}
		if machine.Memory < 1<<20 || machine.Memory > 1<<44 || machine.Memory%(1<<20) != 0 {
			t.Errorf("%d bytes of memory", machine.Memory)
		}
		again, err := json.Marshal(vmi)
		if err != nil {
			t.Fatal(err)
		}
		var second any
		if err := kjson.UnmarshalCaseSensitivePreserveInts(again, &second); err != nil {
			t.Fatal(err)
		}
		if _, problems := manifest.CheckVMI(root, second); len(problems) > 0 {
			t.Errorf("%s became %s: %s", text, again, sentences(problems))
		}
	})
}

// specsOfAdmission returns the specs in admission's test data, as JSON.
func specsOfAdmission(f *testing.F) []string {
	f.Helper()
	paths, err := filepath.Glob("../admission/testdata/*/*.yaml")
	if err != nil || len(paths) == 0 {
		f.Fatalf("no manifests of admission's tests: %v", err)
	}
	var all []string
	for _, path := range paths {
		text, err := os.ReadFile(path)
		if err != nil {
			f.Fatal(err)
		}
		var object struct {
			Spec json.RawMessage `json:"spec"`
		}
		if err := yaml.Unmarshal(text, &object); err != nil {
			f.Fatalf("%s: %v", path, err)
		}
		all = append(all, string(object.Spec))
	}
	return all
}

func checkSentences(t *testing.T, problems field.ErrorList) {
	t.Helper()
	for _, p := range problems {
		if s := fields.Sentence(p); len(s) > 16<<10 || !utf8.ValidString(s) {
			t.Errorf("a problem of %d bytes: %.1000q", len(s), s)
		}
	}
}
