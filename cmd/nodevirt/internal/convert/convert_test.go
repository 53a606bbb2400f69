package convert_test

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"gotest.tools/v3/golden"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"sigs.k8s.io/yaml"

	"github.com/nodevirt/nodevirt/cmd/nodevirt/internal/convert"
	"github.com/nodevirt/nodevirt/controller/manifest"
)

// TestManifests converts each manifest in testdata. Those of disks are the examples of KubeVirt's
// proposals, word for word. Each result, with memory, is one that the API server takes.
func TestManifests(t *testing.T) {
	files, err := filepath.Glob("testdata/*.yaml")
	if err != nil || len(files) < 6 {
		t.Fatal(files, err)
	}
	for _, file := range files {
		t.Run(filepath.Base(file), func(t *testing.T) {
			text, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			got, notes, err := convert.Manifests(text)
			if err != nil {
				t.Fatal(err)
			}
			name := strings.TrimSuffix(filepath.Base(file), ".yaml")
			golden.Assert(t, string(got), name+".golden")
			golden.Assert(t, strings.Join(notes, "\n")+"\n", name+".notes")
			again, notes, err := convert.Manifests(got)
			if err != nil || len(notes) > 0 || !bytes.Equal(again, got) {
				t.Errorf("converted again: %s%v%v", again, notes, err)
			}
			for document := range strings.SplitSeq("\n"+string(got), "\n---\n") {
				wantTaken(t, document)
			}
		})
	}
}

// wantTaken fails the test if the API server refuses an object with memory.
func wantTaken(t *testing.T, document string) {
	t.Helper()
	var object map[string]any
	if err := yaml.Unmarshal([]byte(document), &object); err != nil || object["apiVersion"] != "kubevirt.io/v1" {
		return
	}
	spec := object["spec"].(map[string]any)
	if template, ok := spec["template"].(map[string]any); ok {
		spec = template["spec"].(map[string]any)
	}
	domain := spec["domain"].(map[string]any)
	if domain["memory"] == nil {
		domain["memory"] = map[string]any{"guest": "64Mi"}
	}
	if _, problems := manifest.CheckVMI(field.NewPath("spec"), spec); len(problems) > 0 {
		t.Errorf("the API server refuses it: %v", problems)
	}
}

// disk is a manifest with one disk.
func disk(text string) string {
	return "kind: VM\nspec: {domain: {devices: {disks: [" + text + "]}}}\n"
}

// TestWithoutPresentForm: all disks that can't be converted are named.
func TestWithoutPresentForm(t *testing.T) {
	for text, want := range map[string]string{
		"{type: network}": `document 1: spec.domain.devices.disks[0].type: "network" has no present form`,
		"{type: PersistentVolumeClaim}, {type: 'RegistryDisk:v1alpha'}":                                        "disks[0].source.name: missing; name the image or the PVC\nspec.domain.devices.disks[1].source.name: missing",
		"{type: PersistentVolumeClaim, source: {name: a}, target: {bus: xen}}":                                 `disks[0].target.bus: "xen" has no present form; use virtio, scsi, sata or usb`,
		"{type: PersistentVolumeClaim, source: {name: a}, device: floppy}":                                     `disks[0].device: "floppy" has no present form; use disk, cdrom or lun`,
		"{type: PersistentVolumeClaim, source: {name: a}}]}}}\n---\n" + disk("{type: file}") + "#{a: [{a: {a:": `document 2: spec.domain`,
	} {
		if _, _, err := convert.Manifests([]byte(disk(text))); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v; want %s", text, err, want)
		}
	}
}

// TestCommand reads a file or standard input.
func TestCommand(t *testing.T) {
	text := disk("{type: PersistentVolumeClaim, source: {name: a}, target: {dev: vda}}")
	file := filepath.Join(t.TempDir(), "old.yaml")
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, from := range []string{file, "-"} {
		cmd := convert.Command()
		var out, notes bytes.Buffer
		cmd.SetIn(strings.NewReader(text))
		cmd.SetOut(&out)
		cmd.SetErr(&notes)
		cmd.SetArgs([]string{"-f", from})
		if err := cmd.ExecuteContext(t.Context()); err != nil {
			t.Fatal(err)
		}
		if !strings.Contains(out.String(), "claimName: a") || notes.String() != "document 1: add metadata.name\ndocument 1: add spec.domain.memory.guest\n" {
			t.Errorf("%s: %s%s", from, out.String(), notes.String())
		}
	}
}
