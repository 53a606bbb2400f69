package vm

import (
	"errors"
	"os"
	"testing"

	"google.golang.org/protobuf/proto"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/nodevirt/nodevirt/shim/record"
	"github.com/nodevirt/nodevirt/shim/vmspec"
)

// withCD is a container's request, and what the machine is made of that it asks for: its own disk
// expanded, and one of which only its content tells that it is a CD.
func withCD(t *testing.T, m *Manager) (r record.Container, asked vmspec.Unresolved) {
	t.Helper()
	m.DiskMode = vmspec.ModeRaw
	r = container(m, 1)
	r.Config.Value = proto.CloneOf(r.Config.Value)
	r.Config.Value.Linux = &runtimeapi.LinuxContainerConfig{
		Resources: &runtimeapi.LinuxContainerResources{MemoryLimitInBytes: 128 * mebibyte},
	}
	r.Config.Value.Mounts = []*runtimeapi.Mount{{ContainerPath: "/disks/drivers", Image: &runtimeapi.ImageSpec{Image: "sha256:1"}}}
	asked, err := vmspec.FromCRI(r.Sandbox.Value, r.Config.Value)
	if err != nil {
		t.Fatal(err)
	}
	r.Spec = asked.Resolve(vmspec.Facts{Mode: m.DiskMode, Disks: map[string]vmspec.DiskFacts{"drivers": {CD: true}}})
	if !r.Spec.Disks[1].CDROM || asked.Disks()[1].CDROM {
		t.Fatalf("disks %v of %v", r.Spec.Disks, asked.Disks())
	}
	return r, asked
}

// TestTheSameIsAskedFor: the work for a container goes on over calls, also where a disk turned out to
// be a CD; another machine is begun anew.
func TestTheSameIsAskedFor(t *testing.T) {
	m := manager(t)
	r, asked := withCD(t, m)
	gone := make(chan struct{})
	var given error
	k := &making{
		creation: &creation{Manager: m, rec: r, asked: asked}, gone: gone,
		giveUp: func(cause error) { given = cause; close(gone) },
	}
	m.makings = map[string]*making{containerName(r): k}
	sandbox := record.Sandbox{ID: r.SandboxID, Config: r.Sandbox}
	if found, err := m.begun(t.Context(), sandbox, r.Config.Value); err != nil || found != k || given != nil {
		t.Fatalf("the same container: %v, %v, given up: %v", found, err, given)
	}
	larger := proto.CloneOf(r.Config.Value)
	larger.Linux.Resources.MemoryLimitInBytes *= 2
	if found, err := m.begun(t.Context(), sandbox, larger); err != nil || found != nil || !errors.Is(given, errChanged) {
		t.Errorf("another machine: %v, %v, given up: %v", found, err, given)
	}
}

// TestUpdateLeavesDisks: resources that change before the start make the machine anew, and its disks
// are there already.
func TestUpdateLeavesDisks(t *testing.T) {
	m := manager(t)
	r, _ := withCD(t, m)
	r.State = record.Created
	c := newMachine(r)
	wanted := &runtimeapi.LinuxContainerResources{MemoryLimitInBytes: 256 * mebibyte}
	if err := m.updateCreated(c, r, wanted); err != nil {
		t.Fatal(err)
	}
	got := c.record().Spec
	if got.Memory != 256*mebibyte {
		t.Errorf("memory %d", got.Memory)
	}
	for i, want := range r.Spec.Disks {
		if got.Disks[i] != want {
			t.Errorf("disk %+v, want %+v", got.Disks[i], want)
		}
	}
}

// TestAFailedStartIsTold: also where it can't be written down, or the container would be neither created
// nor ended, and no other one could take its place.
func TestAFailedStartIsTold(t *testing.T) {
	m := manager(t)
	r := container(m, 1)
	r.State = record.Starting
	c := newMachine(r)
	if err := os.WriteFile(m.Records.ContainerDir(r.ID), nil, 0o600); err != nil { // where its folder should be
		t.Fatal(err)
	}
	if err := m.failStart(c, r, errors.New("no room")); err == nil {
		t.Error("it is written down")
	}
	if got := c.record(); got.State != record.Exited || got.Reason != reasonStartError {
		t.Fatalf("it is %s, %q", got.State, got.Reason)
	}
	<-c.exited
}
