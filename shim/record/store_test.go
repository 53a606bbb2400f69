package record_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/protobuf/testing/protocmp"
	"gotest.tools/v3/golden"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/nodevirt/nodevirt/imageunpack"
	"github.com/nodevirt/nodevirt/netsetup"
	"github.com/nodevirt/nodevirt/shim/record"
	"github.com/nodevirt/nodevirt/shim/vmspec"
)

var (
	idA = strings.Repeat("a1", 32)
	idB = strings.Repeat("b2", 32)
	idC = strings.Repeat("c3", 32)
)

func open(t *testing.T) (*record.Store, string) {
	t.Helper()
	root := filepath.Join(t.TempDir(), "root")
	s, err := record.Open(root)
	if err != nil {
		t.Fatal(err)
	}
	return s, root
}

func sandbox() record.Sandbox {
	r := record.Sandbox{
		Version: record.Version, ID: idA, Handler: "vm",
		CreatedAt: time.Date(2026, 11, 21, 3, 0, 0, 123456789, time.UTC),
	}
	r.Config.Value = &runtimeapi.PodSandboxConfig{
		Metadata:    &runtimeapi.PodSandboxMetadata{Name: "pod", Namespace: "default", Uid: "1-2", Attempt: 1},
		Hostname:    "pod",
		Annotations: map[string]string{"nodevirt.io/vm-container": "vm"},
		DnsConfig:   &runtimeapi.DNSConfig{Servers: []string{"10.96.0.10"}},
	}
	return r
}

// container has a value in every field.
func container() record.Container {
	r := record.Container{
		Version: record.Version, ID: idB, SandboxID: idA,
		State:      record.Exited,
		CreatedAt:  time.Date(2026, 11, 21, 3, 0, 1, 0, time.UTC),
		StartedAt:  time.Date(2026, 11, 21, 3, 0, 2, 0, time.UTC),
		FinishedAt: time.Date(2026, 11, 21, 3, 0, 3, 0, time.UTC),
		ExitCode:   137, Reason: "OOMKilled", Message: "too little",
		Sandbox: sandbox().Config,
		LogPath: "/var/log/pods/vm/0.log",
		Image:   record.Image{Tag: "disk:1", Ref: "disk@sha256:1", ID: "sha256:2"},
		Spec: vmspec.Spec{
			CPU: vmspec.CPU{Sockets: 2, Cores: 1, Threads: 1}, Memory: 256 << 20, Machine: "q35",
			Disks: []vmspec.Disk{{Name: "boot", Source: vmspec.SourceImage, Bus: vmspec.BusVirtio, BootOrder: 1}},
		},
		Disks: map[string]record.Disk{"boot": {
			Image: &imageunpack.Disk{Image: "disk:1", ImageID: "sha256:2", Path: "disk/a.qcow2", Format: imageunpack.QCOW2},
		}},
		Domain:  record.Domain{Name: "default_pod_b2b2", UUID: "6d2a", UID: 1900000000, GID: 1900000001, PID: 42},
		Unclean: true,
		Network: &netsetup.Plan{NICs: []netsetup.NIC{{
			Tap: "tap0", MTU: 1400, IPv4: netsetup.Addressing{Address: netip.MustParsePrefix("10.244.1.2/24")},
		}}},
	}
	r.Config.Value = &runtimeapi.ContainerConfig{
		Metadata: &runtimeapi.ContainerMetadata{Name: "vm", Attempt: 2},
		Image:    &runtimeapi.ImageSpec{Image: "disk:1"},
		Labels:   map[string]string{"a": "b"},
		Linux: &runtimeapi.LinuxContainerConfig{
			Resources: &runtimeapi.LinuxContainerResources{MemoryLimitInBytes: 256 << 20},
		},
	}
	return r
}

func TestRoundTrip(t *testing.T) {
	s, root := open(t)
	if err := errors.Join(s.PutSandbox(sandbox()), s.PutContainer(container())); err != nil {
		t.Fatal(err)
	}
	assertFile(t, filepath.Join(root, "sandboxes", idA+".json"), "sandbox.json")
	assertFile(t, filepath.Join(root, "containers", idB, "record.json"), "container.json")

	sandboxes, err := s.Sandboxes()
	if diff := cmp.Diff([]record.Sandbox{sandbox()}, sandboxes, options()...); err != nil || diff != "" {
		t.Errorf("sandboxes: %v\n%s", err, diff)
	}
	containers, err := s.Containers()
	if diff := cmp.Diff([]record.Container{container()}, containers, options()...); err != nil || diff != "" {
		t.Errorf("containers: %v\n%s", err, diff)
	}

	if err := errors.Join(s.RemoveSandbox(idA), s.RemoveContainer(idB)); err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(s.RemoveSandbox(idA), s.RemoveContainer(idB)); err != nil {
		t.Errorf("removing again: %v", err)
	}
	if left := files(t, root); len(left) > 0 {
		t.Errorf("left behind: %v", left)
	}
}

func options() []cmp.Option {
	return []cmp.Option{protocmp.Transform(), cmp.Comparer(func(a, b netip.Prefix) bool { return a == b }),
		cmp.Comparer(func(a, b netip.Addr) bool { return a == b })}
}

// TestReadable: records are for people, too: a fresh container's has no field that says nothing.
func TestReadable(t *testing.T) {
	var r record.Container
	r.Config.Value = &runtimeapi.ContainerConfig{}
	text, err := json.Marshal(r)
	if err != nil {
		t.Fatal(err)
	}
	for _, field := range []string{"startedAt", "finishedAt", "reason", "unclean", "network"} {
		if bytes.Contains(text, []byte(`"`+field+`"`)) {
			t.Errorf("%q is in the record of a container that is not started: %s", field, text)
		}
	}
}

func TestReplace(t *testing.T) {
	s, root := open(t)
	r := container()
	if err := s.PutContainer(r); err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(root, "containers", idB, "record.json")
	before, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer before.Close()
	old, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	r.Message = ""
	if err := s.PutContainer(r); err != nil {
		t.Fatal(err)
	}
	// A process that has the old record open still reads it whole: the file was not
	// written over.
	var still bytes.Buffer
	if _, err := still.ReadFrom(before); err != nil || !bytes.Equal(still.Bytes(), old) {
		t.Errorf("the old record was changed in place: %v", err)
	}
	all, err := s.Containers()
	if err != nil || len(all) != 1 || all[0].Message != "" {
		t.Errorf("after replacing: %v, %v", all, err)
	}
	if left := files(t, root); len(left) != 1 {
		t.Errorf("temporary files stay: %v", left)
	}
	if info, err := os.Stat(path); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("the record, which may hold a pod's secrets: %v, %v", info.Mode(), err)
	}
}

// TestTemporary: no file of a record is ever in a folder that other users can
// read.
func TestTemporary(t *testing.T) {
	shared := t.TempDir()
	t.Setenv("TMPDIR", shared)
	if err := os.Chmod(shared, 0o500); err != nil {
		t.Fatal(err)
	}
	before, err := os.Stat(shared)
	if err != nil {
		t.Fatal(err)
	}
	s, _ := open(t)
	if err := s.PutSandbox(sandbox()); err != nil {
		t.Fatal(err)
	}
	after, err := os.Stat(shared)
	if err != nil || !after.ModTime().Equal(before.ModTime()) {
		t.Errorf("the folder for temporary files was written to: %v", err)
	}
}

// TestCutOff leaves what a shim that was killed could leave.
func TestCutOff(t *testing.T) {
	s, root := open(t)
	if err := errors.Join(s.PutSandbox(sandbox()), s.PutContainer(container())); err != nil {
		t.Fatal(err)
	}
	for _, path := range []string{
		"sandboxes/." + idB + ".json123",
		"sandboxes/" + idB + ".json123",
		"containers/" + idB + "/.record.json123",
		"containers/not-an-id/record.json",
	} {
		write(t, filepath.Join(root, path), "{half")
	}
	// A container for which no record was written yet.
	write(t, filepath.Join(root, "containers", idA, ".record.json77"), "{half")

	sandboxes, err := s.Sandboxes()
	if err != nil || len(sandboxes) != 1 {
		t.Errorf("sandboxes: %v, %v", sandboxes, err)
	}
	containers, err := s.Containers()
	if err != nil || len(containers) != 1 || containers[0].ID != idB {
		t.Errorf("containers: %v, %v", containers, err)
	}
	for _, keep := range []bool{true, false} { // its guest runs, and has ended
		if err := s.RemoveUnrecorded(func(id string) bool { return keep && id == idA }); err != nil {
			t.Error(err)
		}
		if _, err := os.Stat(s.ContainerDir(idA)); errors.Is(err, os.ErrNotExist) == keep {
			t.Errorf("the folder without a record, keep %t: %v", keep, err)
		}
	}
	if _, err := os.Stat(filepath.Join(root, "containers/not-an-id")); err != nil {
		t.Errorf("a folder that isn't ours: %v", err)
	}
}

func TestIDs(t *testing.T) {
	s, root := open(t)
	outside := filepath.Join(filepath.Dir(root), "outside")
	write(t, filepath.Join(outside, "file"), "kept")
	for _, id := range []string{"", ".", "..", "../../outside", idA[:63], idA + "a", strings.ToUpper(idA), idA[:62] + "/."} {
		sandbox, container := sandbox(), container()
		sandbox.ID, container.ID = id, id
		for name, err := range map[string]error{
			"PutSandbox": s.PutSandbox(sandbox), "RemoveSandbox": s.RemoveSandbox(id),
			"PutIntent": s.PutIntent(id, sandbox), "RemoveIntent": s.RemoveIntent(id),
			"PutContainer": s.PutContainer(container), "RemoveContainer": s.RemoveContainer(id),
		} {
			if err == nil {
				t.Errorf("%s took %q for an id", name, id)
			}
		}
	}
	if left := files(t, filepath.Dir(root)); len(left) != 1 {
		t.Errorf("files: %v", left)
	}
}

func TestIntents(t *testing.T) {
	s, _ := open(t)
	intent := sandbox()
	intent.ID = ""
	if err := s.PutIntent(idB, intent); err != nil {
		t.Fatal(err)
	}
	all, err := s.Intents()
	if diff := cmp.Diff(map[string]record.Sandbox{idB: intent}, all, options()...); err != nil || diff != "" {
		t.Errorf("intents: %v\n%s", err, diff)
	}
	if sandboxes, err := s.Sandboxes(); err != nil || len(sandboxes) != 0 {
		t.Errorf("an intent is no sandbox yet: %v, %v", sandboxes, err)
	}
	if err := errors.Join(s.RemoveIntent(idB), s.RemoveIntent(idB)); err != nil {
		t.Fatal(err)
	}
	if all, err := s.Intents(); err != nil || len(all) != 0 {
		t.Errorf("after removing: %v, %v", all, err)
	}
}

// TestModes: QEMU's user gets through to its container's folder, and no user sees another's.
func TestModes(t *testing.T) {
	s, root := open(t)
	if err := s.PutContainer(container()); err != nil {
		t.Fatal(err)
	}
	if _, err := record.Open(root); err != nil {
		t.Fatalf("open again: %v", err)
	}
	for dir, want := range map[string]os.FileMode{
		root: 0o711, filepath.Join(root, "sandboxes"): 0o700, filepath.Join(root, "containers"): 0o711, s.ContainerDir(idB): 0o711,
	} {
		if info, err := os.Stat(dir); err != nil || info.Mode().Perm() != want {
			t.Errorf("%s: %v, %v; want %v", dir, info.Mode(), err, want)
		}
	}
}

func write(t *testing.T, path, text string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

func files(t *testing.T, root string) []string {
	t.Helper()
	var all []string
	err := filepath.WalkDir(root, func(path string, d os.DirEntry, err error) error {
		if err == nil && !d.IsDir() {
			all = append(all, path)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return all
}

// assertFile compares a file with the golden file of that name.
func assertFile(t *testing.T, path, name string) {
	t.Helper()
	got, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	golden.Assert(t, string(got), name)
}
