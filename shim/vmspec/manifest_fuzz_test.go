package vmspec_test

import (
	"encoding/json"
	"testing"
	"unicode/utf8"

	"k8s.io/apimachinery/pkg/util/validation/field"
	kjson "sigs.k8s.io/json"

	"github.com/nodevirt/nodevirt/shim/vmspec"
)

// FuzzManifest gives strangers' specs to admission's checks. What comes through
// can be read again, and a node takes what is the node's of it.
func FuzzManifest(f *testing.F) {
	f.Add(allOfPods)
	f.Add(allVMI)
	f.Add(`{"runStrategy": "Always", "template": {"metadata": {"labels": {"a": "b"}}, "spec": ` + allOfPods + `}}`)
	f.Add(`{"domain": {"devices": {"disks": [{"type": "RegistryDisk:v1alpha", "source": {"name": "x"}}, {"type": 7}, null]}}}`)
	f.Add(`{"replicas": 2, "paused": true, "selector": {"matchLabels": {"a": "b"}, "matchExpressions": [{"key": "a", "operator": "In"}]}}`)
	f.Add(`{"selector": {}, "domain": {"cpu": {"cores": 2}, "devices": {"disks": [{"name": "a"}]}}}`)
	for _, bad := range badVMIs {
		f.Add(bad.vmi)
	}
	f.Fuzz(func(t *testing.T, text string) {
		var tree any
		if kjson.UnmarshalCaseSensitivePreserveInts([]byte(text), &tree) != nil {
			return
		}
		root := field.NewPath("spec")
		_, problems := vmspec.CheckVM(root, tree)
		checkSentences(t, problems)
		_, problems = vmspec.CheckReplicaSet(root, tree)
		checkSentences(t, problems)
		checkSentences(t, vmspec.CheckPreset(root, tree))
		vmi, problems := vmspec.CheckVMI(root, tree)
		checkSentences(t, problems)
		if len(problems) > 0 {
			return
		}
		machine := vmspec.Preview(vmi)
		if n := machine.CPU.Sockets * machine.CPU.Cores * machine.CPU.Threads; n < 1 || n > 240 {
			t.Errorf("%d vCPUs", n)
		}
		if machine.Memory < 16<<20 || machine.Memory > 1<<44 || machine.Memory%(1<<20) != 0 {
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
		if _, problems := vmspec.CheckVMI(root, second); len(problems) > 0 {
			t.Errorf("%s became %s: %s", text, again, sentences(problems))
		}
	})
}

func checkSentences(t *testing.T, problems field.ErrorList) {
	t.Helper()
	for _, p := range problems {
		if s := vmspec.Sentence(p); len(s) > 16<<10 || !utf8.ValidString(s) {
			t.Errorf("a problem of %d bytes: %.1000q", len(s), s)
		}
	}
}
