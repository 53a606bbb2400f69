package admission_test

import (
	"encoding/json"
	"os"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/nodevirt/nodevirt/controller/admission"
)

// taken returns a manifest of testdata/taken with its defaults.
func (r rig) taken(t *testing.T, name string) *unstructured.Unstructured {
	t.Helper()
	text, err := os.ReadFile("testdata/taken/" + name + ".yaml")
	if err != nil {
		t.Fatal(err)
	}
	object := new(unstructured.Unstructured)
	if err := object.UnmarshalJSON(r.defaulted(t, manifest(t, string(text), ""), nil)); err != nil {
		t.Fatal(err)
	}
	return object
}

func encoded(t *testing.T, object *unstructured.Unstructured) []byte {
	t.Helper()
	text, err := json.Marshal(object)
	if err != nil {
		t.Fatal(err)
	}
	return text
}

func TestUpdate(t *testing.T) {
	r := newRig(t)
	set := func(value any, path ...string) func(*testing.T, *unstructured.Unstructured) {
		return func(t *testing.T, o *unstructured.Unstructured) {
			t.Helper()
			if err := unstructured.SetNestedField(o.Object, value, path...); err != nil {
				t.Fatal(err)
			}
		}
	}
	const fixed = ": an instance can't be changed; delete and recreate it, or change its VirtualMachine and restart that"
	for _, c := range []struct {
		name, of string
		change   func(*testing.T, *unstructured.Unstructured)
		want     string // "" is taken
	}{
		{"an instance's labels", "vmi-least", set("b", "metadata", "labels", "a"), ""},
		{"an instance's finalizers", "vmi-least", set([]any{}, "metadata", "finalizers"), ""},
		{"an instance's cores", "vmi-least", set(int64(2), "spec", "domain", "cpu", "cores"), "spec.domain.cpu.cores" + fixed},
		{"an instance's new field", "vmi-least", set("web", "spec", "hostname"), "spec.hostname" + fixed},
		{
			"an instance's lists", "vmi-least", set([]any{
				map[string]any{"name": "root", "containerDisk": map[string]any{"image": "example.com/other"}},
			}, "spec", "volumes"), "spec.volumes[0].containerDisk.image" + fixed,
		},
		{"an unknown field", "vmi-least", set("x", "spec", "bogus"), "spec.bogus: unknown field"},
		{
			"an instance's annotation", "vmi-least", set("x", "metadata", "annotations", "nodevirt.io/vmi"),
			"metadata.annotations[nodevirt.io/vmi]: not among those",
		},
		{
			"an export's image", "export", set("registry.example.com/disks/web:2", "metadata", "annotations", "nodevirt.io/push-image"),
			"metadata.annotations[nodevirt.io/push-image]: immutable after creation",
		},
		{"an export's other annotation", "export", set("x", "metadata", "annotations", "note"), ""},
		{"a VM's cores", "vm-halted", set(int64(2), "spec", "template", "spec", "domain", "cpu", "cores"), ""},
		{"a pool's template", "pool", set("Manual", "spec", "virtualMachineTemplate", "spec", "runStrategy"), ""},
		{
			"a pool's selector", "pool-strategies", func(t *testing.T, o *unstructured.Unstructured) {
				set("b", "spec", "selector", "matchLabels", "app")(t, o)
				set("b", "spec", "virtualMachineTemplate", "metadata", "labels", "app")(t, o)
			}, "spec.selector: cannot change; create another pool",
		},
		{"a VM's strategy", "vm-halted", set("Always", "spec", "runStrategy"), ""},
		{"a VM's instance type", "vm-typed", set("large", "spec", "instancetype", "name"), ""},
		{
			"a VM's preference, and not its revision", "vm-typed", set("other", "spec", "preference", "name"),
			"spec.preference.revisionName: is of fedora; leave it out, or name one of other",
		},
		{
			"a VM's preference and its revision", "vm-typed", set(map[string]any{"name": "other", "revisionName": "r-2"}, "spec", "preference"), "",
		},
		{"a VM's both", "vm-halted", set(true, "spec", "running"), "spec.running: runStrategy is given too"},
		{
			"a VM's cores beyond", "vm-halted", set(int64(999), "spec", "template", "spec", "domain", "cpu", "cores"),
			"spec.template.spec.domain.cpu.cores: Invalid value: 999",
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			old := r.taken(t, c.of)
			changed := old.DeepCopy()
			c.change(t, changed)
			answer := r.ask(t, admission.PathValidate, encoded(t, changed), encoded(t, old))
			switch {
			case c.want == "" && !answer.Allowed:
				t.Errorf("refused: %s", answer.Result.Message)
			case c.want != "" && !strings.HasPrefix(refusal(t, answer), c.want):
				t.Errorf("said %q, not %q", answer.Result.Message, c.want)
			}
		})
	}
}

// TestUpdateOfUnsupported: what was taken once, by an older controller say, can
// lose its finalizers, and nothing of it is put right behind its author's back.
func TestUpdateOfUnsupported(t *testing.T) {
	r := newRig(t)
	old := r.taken(t, "vm-halted")
	for _, o := range []string{"bogus", "gpus"} {
		if err := unstructured.SetNestedField(old.Object, "x", "spec", "template", "spec", o); err != nil {
			t.Fatal(err)
		}
	}
	old.SetFinalizers([]string{"x"})
	changed := old.DeepCopy()
	changed.SetFinalizers(nil)
	for _, hook := range []string{admission.PathDefault, admission.PathValidate} {
		answer := r.ask(t, hook, encoded(t, changed), encoded(t, old))
		if !answer.Allowed || len(answer.Patch) > 0 {
			t.Errorf("%s: %+v", hook, answer)
		}
	}
}

// TestStrangeRequests: other kinds and no objects at all are errors, and deletions
// are admitted.
func TestStrangeRequests(t *testing.T) {
	r := newRig(t)
	for body, want := range map[string]string{
		`{"apiVersion": "kubevirt.io/v1", "kind": "VirtualMachineTemplate", "metadata": {"name": "x"}}`:    "not one of those that this webhook decides on",
		`{"apiVersion": "kubevirt.io/v1", "kind": "VirtualMachine", "metadata": {"name": "x"}, "spec": 7}`: "spec: must be an object, not 7",
		`{"apiVersion": "kubevirt.io/v1", "kind": "VirtualMachine", "metadata": {"name": "x"},
			"spec": {"running": true, "template": {"spec": []}}}`: "spec.template.spec: must be an object, not []",
		`{"apiVersion": "kubevirt.io/v1", "kind": "VirtualMachineInstance", "metadata": {"name": "x"},
			"spec": {"domain": {"devices": {"disks": [7, null]}}, "volumes": {}}}`: "spec.domain.devices.disks[0]: must be an object, not 7",
	} {
		for _, hook := range []string{admission.PathDefault, admission.PathValidate} {
			answer := r.ask(t, hook, []byte(body), nil)
			if answer.Allowed || !strings.Contains(answer.Result.Message, want) {
				t.Errorf("%s of %s: %+v", hook, body, answer.Result)
			}
		}
	}
}

// TestUpdateInProgress: a VM that is being snapshotted keeps its volumes and its state, and one
// that is being restored does not start.
func TestUpdateInProgress(t *testing.T) {
	r := newRig(t)
	other := []any{map[string]any{"name": "root", "containerDisk": map[string]any{"image": "example.com/other"}}}
	for _, c := range []struct {
		status string
		value  any
		path   []string
		want   string // "" is taken
	}{
		{"snapshotInProgress", "Always", []string{"runStrategy"}, `Cannot update VM running state until snapshot "x" completes`},
		{"snapshotInProgress", other, []string{"template", "spec", "volumes"}, `Cannot update VM disks or volumes until snapshot "x" completes`},
		{"snapshotInProgress", "web", []string{"template", "spec", "hostname"}, ""},
		{"restoreInProgress", "Always", []string{"runStrategy"}, `Cannot update VM runStrategy until restore "x" completes`},
		{"restoreInProgress", "web", []string{"template", "spec", "hostname"}, ""},
	} {
		old := r.taken(t, "vm-halted")
		if err := unstructured.SetNestedField(old.Object, "Halted", "spec", "runStrategy"); err != nil {
			t.Fatal(err)
		}
		unstructured.RemoveNestedField(old.Object, "spec", "running")
		if err := unstructured.SetNestedField(old.Object, "x", "status", c.status); err != nil {
			t.Fatal(err)
		}
		now := old.DeepCopy()
		if err := unstructured.SetNestedField(now.Object, c.value, append([]string{"spec"}, c.path...)...); err != nil {
			t.Fatal(err)
		}
		answer := r.ask(t, admission.PathValidate, encoded(t, now), encoded(t, old))
		if answer.Allowed != (c.want == "") || !answer.Allowed && !strings.Contains(refusal(t, answer), c.want) {
			t.Errorf("%s, %v: %+v, want %q", c.status, c.path, answer.Result, c.want)
		}
	}
}
