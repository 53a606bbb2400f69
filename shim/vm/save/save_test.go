package save_test

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/containerd/errdefs"
	"gotest.tools/v3/assert"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/nodevirt/nodevirt/imageunpack"
	"github.com/nodevirt/nodevirt/shim/checkpoint"
	"github.com/nodevirt/nodevirt/shim/disk"
	"github.com/nodevirt/nodevirt/shim/domain"
	"github.com/nodevirt/nodevirt/shim/migrate/order"
	"github.com/nodevirt/nodevirt/shim/record"
	"github.com/nodevirt/nodevirt/shim/vm/background"
	"github.com/nodevirt/nodevirt/shim/vm/save"
	"github.com/nodevirt/nodevirt/shim/vm/table"
	"github.com/nodevirt/nodevirt/shim/vm/vmtest"
	"github.com/nodevirt/nodevirt/shim/vmspec"
)

const vmID = "5d307ca9-b3ef-428c-8861-06e72d69f223"

// rig is Saves on fakes, with one VM.
type rig struct {
	*save.Saves

	dir    string
	table  *table.Table
	vm     *table.VM
	tasks  *background.Tasks
	moving bool

	mu     sync.Mutex
	calls  []string
	status domain.Status
	// fail has errors of calls, which are returned once.
	fail map[string]error
	// during is called while the guest is saved.
	during func(context.Context) error
	// stuck keeps the guest's disks from being written until it is closed; nil for a volume that answers.
	stuck chan struct{}
	// hangs keeps the named accesses to a volume from ending until it is closed.
	hangs map[string]chan struct{}
}

// files are archives in a volume that may not answer.
type files struct{ *rig }

func (f files) Create(folder, name string) (*os.File, error) {
	f.answer("create")
	return disk.Archives{}.Create(folder, name)
}

func (f files) Rename(folder, from, to string) error {
	f.answer("rename")
	return disk.Archives{}.Rename(folder, from, to)
}

func (f files) Remove(folder, name string) error {
	f.answer("remove")
	return disk.Archives{}.Remove(folder, name)
}

func (f files) answer(access string) {
	f.mu.Lock()
	hangs := f.hangs[access]
	f.mu.Unlock()
	if hangs != nil {
		<-hangs
	}
}

// hang lets an access to the volume hang until the returned function is called.
func (r *rig) hang(access string) (answer func()) {
	r.mu.Lock()
	defer r.mu.Unlock()
	c := make(chan struct{})
	r.hangs[access] = c
	return func() {
		r.mu.Lock()
		delete(r.hangs, access)
		r.mu.Unlock()
		close(c)
	}
}

func newRig(t *testing.T) *rig {
	t.Helper()
	s := &vmtest.Script{}
	r := &rig{dir: t.TempDir(), status: domain.StatusRunning, fail: map[string]error{}, hangs: map[string]chan struct{}{}, during: func(context.Context) error { return nil }}
	r.table = table.New(vmtest.NewStore(s, filepath.Join(r.dir, "containers")), uint32(os.Getuid()), 4)
	r.tasks = background.New()
	t.Cleanup(r.tasks.Stop)
	rec := record.Container{ID: record.NewID(), SandboxID: record.NewID(), State: record.Running, Image: record.Image{ID: "sha256:1"}}
	rec.Sandbox.Value = &runtimeapi.PodSandboxConfig{Metadata: &runtimeapi.PodSandboxMetadata{Name: "pod", Namespace: "default", Uid: "1"}}
	rec.Config.Value = &runtimeapi.ContainerConfig{Metadata: &runtimeapi.ContainerMetadata{Name: "vm"}}
	rec.Domain = record.Domain{Name: "vm", UUID: vmID}
	rec.Spec = vmspec.Spec{
		CPU: vmspec.CPU{Sockets: 1, Cores: 1, Threads: 1}, Memory: 64 << 20, Machine: "q35",
		Disks: []vmspec.Disk{
			{Name: "root", Source: vmspec.SourceImage, Bus: vmspec.BusVirtio, Target: "vda"},
			{Name: "data", Source: vmspec.SourceEmpty, Bus: vmspec.BusVirtio, Target: "vdb"},
		},
	}
	rec.Disks = map[string]record.Disk{"root": {Image: &imageunpack.Disk{ImageID: "sha256:1", Path: "/disk"}}}
	sandbox := record.Sandbox{ID: rec.SandboxID, Handler: "vm"}
	sandbox.Config.Value = rec.Sandbox.Value
	assert.NilError(t, r.table.AddSandbox(sandbox))
	r.vm = table.NewVM(rec)
	assert.NilError(t, r.table.Reserve(r.vm))
	assert.NilError(t, r.table.Put(r.vm, rec))
	for _, name := range []string{"root", "data"} {
		assert.NilError(t, os.WriteFile(filepath.Join(r.dir, name), []byte("writes to "+name), 0o600))
	}
	r.Saves = save.New(save.Options{
		Table: r.table, Tasks: r.tasks, Domains: r, Disks: r, Images: r, Moves: r, Agents: vmtest.NewAgents(s), Files: files{r}, Pods: r, Accelerator: domain.TCG,
		Describe: func(c record.Container) domain.Description {
			layer := []domain.Layer{{Format: "qcow2", Path: "/x"}}
			return domain.Description{
				Name: "vm", UUID: vmID, Spec: c.Spec, Accelerator: domain.TCG, Emulator: "/qemu", Disks: slices.Repeat([]domain.Disk{{Layers: layer}}, len(c.Spec.Disks)),
			}
		},
		Logger: slog.New(slog.NewTextHandler(t.Output(), nil)),
	})
	return r
}

func (r *rig) note(call string) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.calls = append(r.calls, call)
	err := r.fail[call]
	delete(r.fail, call)
	return err
}

func (r *rig) said() []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Clone(r.calls)
}

func (r *rig) Pause(context.Context, string) error  { return r.note("pause") }
func (r *rig) Resume(context.Context, string) error { return r.note("resume") }

func (r *rig) Destroy(context.Context, string) error { return r.note("destroy") }

func (r *rig) State(context.Context, string) (domain.State, error) {
	return domain.State{Status: r.status}, nil
}

func (r *rig) MigratableXML(context.Context, string) (string, error) {
	return `<domain><os><type machine="pc-q35-7.2">hvm</type></os><cpu mode="maximum"/><devices/></domain>`, nil
}

func (r *rig) SaveMemory(ctx context.Context, _ string, to *os.File) error {
	if err := r.note("memory"); err != nil {
		return err
	}
	if _, err := to.WriteString("memory"); err != nil {
		return err
	}
	return r.during(ctx)
}

func (r *rig) Written(record.Container) map[string]string {
	if r.stuck != nil {
		<-r.stuck
	}
	return map[string]string{"root": filepath.Join(r.dir, "root"), "data": filepath.Join(r.dir, "data")}
}

func (r *rig) Open(context.Context, imageunpack.Disk, string) (*os.File, error) {
	return os.Open(os.DevNull)
}
func (r *rig) Moving(*table.VM) bool                       { return r.moving }
func (r *rig) Guest(record.Container) (order.Guest, error) { return order.Guest{CPU: "Intel"}, nil }

func (r *rig) location() string { return filepath.Join(r.dir, "checkpoint.tar") }

// wantNone checks that no archive is left, and that the VM is not being saved.
func (r *rig) wantNone(t *testing.T) {
	t.Helper()
	left, err := filepath.Glob(r.location() + "*")
	assert.NilError(t, err)
	if len(left) > 0 || r.vm.Record().Saving != nil {
		t.Errorf("left: %v, %+v", left, r.vm.Record().Saving)
	}
}

func TestCheckpoint(t *testing.T) {
	r := newRig(t)
	r.during = func(context.Context) error {
		if got := r.vm.Record().Saving; got == nil || got.Partial != r.location()+".partial" {
			t.Errorf("while it is saved, the record has %+v", got)
		}
		if err := r.Checkpoint(t.Context(), r.vm.Record().ID, r.location()+"2", 0); !errdefs.IsFailedPrecondition(err) {
			t.Errorf("a second one: %v", err)
		}
		return nil
	}
	assert.NilError(t, r.Checkpoint(t.Context(), r.vm.Record().ID, r.location(), 0))
	assert.Equal(t, strings.Join(r.said(), " "), "pause memory resume resume") // the end makes sure
	if r.vm.Record().Saving != nil {
		t.Error("the VM is still being saved")
	}
	info, err := os.Stat(r.location())
	assert.NilError(t, err)
	assert.Equal(t, info.Mode(), os.FileMode(0o600))

	a, err := checkpoint.OpenArchive(r.location())
	assert.NilError(t, err)
	defer func() { _ = a.Close() }()
	m, err := checkpoint.Read(a)
	assert.NilError(t, err)
	assert.Equal(t, m.Image, "sha256:1")
	assert.Equal(t, m.CPU, "Intel")
	assert.Equal(t, len(m.Disks), 2)
	assert.Equal(t, m.Bases["root"].Image, "sha256:1")
	assert.Assert(t, strings.Contains(string(m.Shape), "pc-q35-7.2") && m.Devices["disk/vdb"] != "", "%s %v", m.Shape, m.Devices)
	d, _ := m.Disk("data")
	f, err := os.Create(filepath.Join(r.dir, "unpacked"))
	assert.NilError(t, err)
	defer f.Close()
	assert.NilError(t, checkpoint.UnpackDisk(t.Context(), a, d, f))
	text, err := io.ReadAll(io.NewSectionReader(f, 0, 100))
	assert.NilError(t, err)
	assert.Equal(t, string(text), "writes to data")
}

// TestFailures: whatever fails, the guest goes on and no archive is left.
func TestFailures(t *testing.T) {
	for name, set := range map[string]func(r *rig){
		"pause":  func(r *rig) { r.fail["pause"] = errors.New("full") },
		"memory": func(r *rig) { r.fail["memory"] = errors.New("full") },
		"disk":   func(r *rig) { _ = os.Remove(filepath.Join(r.dir, "data")) },
		"too long": func(r *rig) {
			r.during = func(ctx context.Context) error { <-ctx.Done(); return context.Cause(ctx) }
		},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t)
			set(r)
			err := r.Checkpoint(t.Context(), r.vm.Record().ID, r.location(), 300*time.Millisecond)
			assert.Assert(t, err != nil)
			if name == "too long" {
				assert.ErrorContains(t, err, "paused for 300ms only")
			}
			assert.Equal(t, r.said()[len(r.said())-1], "resume")
			r.wantNone(t)
			r.during = func(context.Context) error { return nil }
			assert.NilError(t, os.WriteFile(filepath.Join(r.dir, "data"), nil, 0o600))
			assert.NilError(t, r.Checkpoint(t.Context(), r.vm.Record().ID, r.location(), 0))
		})
	}
}

// TestRecover: a guest that an earlier shim has paused goes on, as soon as libvirtd resumes it.
func TestRecover(t *testing.T) {
	r := newRig(t)
	rec := r.vm.Record()
	rec.Saving = &record.Saving{Partial: r.location() + ".partial"}
	assert.NilError(t, os.WriteFile(rec.Saving.Partial, nil, 0o600))
	assert.NilError(t, r.table.Put(r.vm, rec))
	r.fail["resume"] = domain.ErrUnavailable
	r.Recover()
	for end := time.Now().Add(time.Minute); r.vm.Record().Saving != nil && time.Now().Before(end); {
		time.Sleep(10 * time.Millisecond)
	}
	r.wantNone(t)
	assert.Equal(t, strings.Join(r.said(), " "), "resume resume")
}

func TestRefused(t *testing.T) {
	change := func(do func(*record.Container)) func(r *rig) {
		return func(r *rig) {
			rec := r.vm.Record()
			rec.Spec.Disks = slices.Clone(rec.Spec.Disks)
			do(&rec)
			r.vm.Publish(rec)
		}
	}
	for words, set := range map[string]func(r *rig){
		"does not run":        change(func(c *record.Container) { c.State = record.Exited }),
		"is on a volume":      change(func(c *record.Container) { c.Spec.Disks[1].Source = vmspec.SourcePVC }),
		"mode iscsi":          change(func(c *record.Container) { c.Spec.Disks[0].Mode = vmspec.ModeISCSI }),
		"are frozen":          change(func(c *record.Container) { c.Freeze = &record.Freeze{} }),
		"VSOCK":               change(func(c *record.Container) { c.Spec.VSOCK = true }),
		"the guest is paused": func(r *rig) { r.status = domain.StatusPaused },
		"is moving":           func(r *rig) { r.moving = true },
	} {
		r := newRig(t)
		set(r)
		err := r.Checkpoint(t.Context(), r.vm.Record().ID, r.location(), 0)
		if err == nil || !strings.Contains(err.Error(), words) {
			t.Errorf("%v; want %q", err, words)
		}
		if slices.Contains(r.said(), "pause") {
			t.Errorf("%s: the guest was paused", words)
		}
		r.wantNone(t)
	}
	r := newRig(t)
	for _, location := range []string{"checkpoint.tar", r.dir + "/../x", filepath.Join(r.dir, "none", "x.tar"), filepath.Join(r.dir, "root")} {
		if err := r.Checkpoint(t.Context(), r.vm.Record().ID, location, 0); !errdefs.IsInvalidArgument(err) {
			t.Errorf("%s: %v", location, err)
		}
	}
	if err := r.Checkpoint(t.Context(), "none", r.location(), 0); !errdefs.IsNotFound(err) {
		t.Errorf("another container: %v", err)
	}
}
