package memorydump_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc"
	"gotest.tools/v3/assert"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/nodevirt/nodevirt/shim/disk"
	"github.com/nodevirt/nodevirt/shim/domain"
	"github.com/nodevirt/nodevirt/shim/record"
	"github.com/nodevirt/nodevirt/shim/vm/background"
	"github.com/nodevirt/nodevirt/shim/vm/hotplug/order"
	"github.com/nodevirt/nodevirt/shim/vm/layout"
	"github.com/nodevirt/nodevirt/shim/vm/memorydump"
	"github.com/nodevirt/nodevirt/shim/vm/table"
	"github.com/nodevirt/nodevirt/shim/vm/vmerrors"
	"github.com/nodevirt/nodevirt/shim/vm/vmtest"
)

const podUID = "0d2c5a5e-0000-4000-8000-000000000001"

var id = strings.Repeat("a", 64)

// rig is Dumps on a fake QEMU. The files are real.
type rig struct {
	*memorydump.Dumps
	store  *vmtest.Store
	vm     *table.VM
	folder string
	owner  string // the pod that the attachment pod names

	mu     sync.Mutex
	moving bool
	// ends has the result of the dump that is under way, failing that of one that ends at once.
	ends                   chan error
	failing                error
	starts, tells, cleared int
	// hangs has the volume answer once it is closed; nil for a volume that answers.
	hangs chan struct{}
}

func newRig(t *testing.T) *rig {
	t.Helper()
	r := &rig{store: vmtest.NewStore(&vmtest.Script{}, t.TempDir()), folder: t.TempDir(), owner: podUID, ends: make(chan error)}
	c := record.Container{ID: "c", SandboxID: "s", State: record.Running, Domain: record.Domain{Name: "d", UUID: "u"}}
	c.Sandbox.Value = &runtimeapi.PodSandboxConfig{Metadata: &runtimeapi.PodSandboxMetadata{Name: "pod", Namespace: "shop", Uid: podUID}}
	c.Config.Value = &runtimeapi.ContainerConfig{Metadata: &runtimeapi.ContainerMetadata{Name: "vm"}}
	assert.NilError(t, r.store.PutContainer(c))
	r.start(t)
	return r
}

// start starts a shim, which reads the record.
func (r *rig) start(t *testing.T) {
	t.Helper()
	tasks := background.New()
	t.Cleanup(tasks.Stop)
	vms := table.New(r.store, 1000, 4)
	on, _ := r.store.Container("c")
	r.vm = vms.Recover(on)
	r.Dumps = memorydump.New(memorydump.Options{
		Table: vms, Tasks: tasks, Domains: r, Files: volume{r}, Moves: r, Pods: r, Conditions: r, Layout: layout.Layout{Folder: func(id string) string { return "/run/" + id }},
		Logger: slog.New(slog.NewTextHandler(t.Output(), nil)),
	})
	r.Recover()
}

// volume is a volume whose server may be away.
type volume struct{ *rig }

func (f volume) Create(folder, name string) (*os.File, error) {
	f.answer()
	return disk.Dumps{}.Create(folder, name)
}

func (f volume) Remove(folder, name string) error {
	f.answer()
	return disk.Dumps{}.Remove(folder, name)
}

func (f volume) answer() {
	f.mu.Lock()
	hangs := f.hangs
	f.mu.Unlock()
	if hangs != nil {
		<-hangs
	}
}

func (r *rig) hang(c chan struct{}) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.hangs = c
}

// turn checks that the VM's turn is free, as a stop needs it.
func (r *rig) turn(t *testing.T) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Millisecond)
	defer cancel()
	unlock, err := r.vm.Lock(ctx)
	assert.NilError(t, err)
	unlock()
}

func (r *rig) Moving(*table.VM) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.moving
}

func (r *rig) Update(*table.VM) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.tells++
}

// count returns one of the rig's counters while a dump may be under way.
func (r *rig) count(of *int) int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return *of
}

func (r *rig) Write(ctx context.Context, _ string, to domain.Dump, f *os.File) error {
	defer f.Close()
	if on, _ := r.store.Container("c"); !on.Dumping() || to.Limit < 1<<30 || !strings.HasSuffix(to.Pipe, "/c/memory-dump") {
		return errors.New("it is not recorded")
	}
	r.mu.Lock()
	r.starts++
	failing := r.failing
	r.mu.Unlock()
	if _, err := f.WriteString("memory"); err != nil || failing != nil {
		return errors.Join(err, failing)
	}
	select {
	case <-ctx.Done():
		return ctx.Err()
	case err := <-r.ends:
		return err
	}
}

func (r *rig) Clear(string) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.cleared++
	return nil
}

func (r *rig) ContainerStatus(context.Context, *runtimeapi.ContainerStatusRequest, ...grpc.CallOption) (*runtimeapi.ContainerStatusResponse, error) {
	info, err := json.Marshal(map[string]any{"sandboxID": "hp", "config": &runtimeapi.ContainerConfig{
		Metadata: &runtimeapi.ContainerMetadata{Name: "volumes"},
		Mounts:   []*runtimeapi.Mount{{ContainerPath: "/volumes/claim", HostPath: r.folder}},
	}})
	return &runtimeapi.ContainerStatusResponse{
		Status: &runtimeapi.ContainerStatus{State: runtimeapi.ContainerState_CONTAINER_RUNNING}, Info: map[string]string{"info": string(info)},
	}, err
}

func (r *rig) PodSandboxStatus(context.Context, *runtimeapi.PodSandboxStatusRequest, ...grpc.CallOption) (*runtimeapi.PodSandboxStatusResponse, error) {
	return &runtimeapi.PodSandboxStatusResponse{Status: &runtimeapi.PodSandboxStatus{
		Metadata: &runtimeapi.PodSandboxMetadata{Name: "hp", Namespace: "shop"}, State: runtimeapi.PodSandboxState_SANDBOX_READY,
		Annotations: map[string]string{order.Annotation: r.owner},
	}}, nil
}

func (r *rig) order(t *testing.T, control, argument string) (order.Dump, error) {
	t.Helper()
	text, err := r.Do(t.Context(), r.vm, control, argument)
	var d order.Dump
	if err == nil {
		assert.NilError(t, json.Unmarshal(text, &d))
	}
	return d, err
}

func (r *rig) dump(t *testing.T, file string) (order.Dump, error) {
	t.Helper()
	return r.order(t, order.MemoryDump, fmt.Sprintf(`{"volume": "claim", "container": %q, "file": %q}`, id, file))
}

func (r *rig) state(t *testing.T) order.Dump {
	t.Helper()
	d, err := r.order(t, order.MemoryDumpStatus, `{"name": "claim"}`)
	assert.NilError(t, err)
	return d
}

// files returns the names in the volume.
func (r *rig) files(t *testing.T) string {
	t.Helper()
	entries, err := os.ReadDir(r.folder)
	assert.NilError(t, err)
	var names []string
	for _, e := range entries {
		names = append(names, e.Name())
	}
	return strings.Join(names, " ")
}

// TestDump: an order answers while QEMU writes, and its repetition when QEMU has ended.
func TestDump(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		assert.Equal(t, r.state(t).State, order.DumpNone)
		for range 2 {
			d, err := r.dump(t, "vm-1.memory.dump")
			assert.NilError(t, err)
			assert.Equal(t, d.State, order.DumpWriting)
		}
		assert.Equal(t, r.count(&r.starts), 1)
		assert.Assert(t, r.vm.Record().Dumping())
		if _, err := r.dump(t, "vm-2.memory.dump"); !errors.Is(err, vmerrors.ErrState) {
			t.Errorf("another dump meanwhile: %v", err)
		}
		r.ends <- nil
		synctest.Wait()
		d, err := r.dump(t, "vm-1.memory.dump")
		assert.NilError(t, err)
		assert.Equal(t, d.State, order.DumpCompleted)
		assert.Equal(t, d.File, "vm-1.memory.dump")
		assert.Assert(t, !d.Start.IsZero() && d.End.After(d.Start))
		assert.Equal(t, r.count(&r.starts), 1)
		assert.Equal(t, r.files(t), "vm-1.memory.dump")
		assert.Assert(t, r.count(&r.tells) >= 2)

		_, err = r.dump(t, "vm-2.memory.dump")
		assert.NilError(t, err)
		assert.Equal(t, r.files(t), "vm-2.memory.dump")
		r.ends <- errors.New("no space")
		synctest.Wait()
		d = r.state(t)
		assert.Equal(t, d.State, order.DumpFailed)
		assert.Equal(t, d.Message, "no space")
		assert.Equal(t, r.files(t), "")
	})
}

// TestRefusals: what is not this VM's, or no dump's name, is refused before anything is written.
func TestRefusals(t *testing.T) {
	r := newRig(t)
	for _, file := range []string{"../vm.memory.dump", "vm.dump", ".memory.dump", "a/b.memory.dump", strings.Repeat("a", 250) + ".memory.dump"} {
		if _, err := r.dump(t, file); !errors.Is(err, vmerrors.ErrInvalid) {
			t.Errorf("%s: %v", file, err)
		}
	}
	for _, argument := range []string{`{`, `{"volume": "other", "container": "` + id + `", "file": "a.memory.dump"}`, `{"volume": "../x"}`} {
		if _, err := r.order(t, order.MemoryDump, argument); !errors.Is(err, vmerrors.ErrInvalid) {
			t.Errorf("%s: %v", argument, err)
		}
	}
	r.owner = "another"
	if _, err := r.dump(t, "vm.memory.dump"); !errors.Is(err, vmerrors.ErrInvalid) {
		t.Errorf("a stranger's pod: %v", err)
	}
	r.owner, r.moving = podUID, true
	if _, err := r.dump(t, "vm.memory.dump"); !errors.Is(err, vmerrors.ErrState) {
		t.Errorf("a guest that moves: %v", err)
	}
	assert.Equal(t, r.count(&r.starts), 0)
	assert.Equal(t, r.files(t), "")
}

// TestFailures: what fails at the start is the dump's result, and the guest's memory can be
// dumped again.
func TestFailures(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		r.failing = errors.New("refused")
		d, err := r.dump(t, "vm-1.memory.dump")
		assert.NilError(t, err)
		assert.Equal(t, d.State, order.DumpFailed)
		assert.Equal(t, d.Message, "refused")
		assert.Equal(t, r.files(t), "")
		r.failing = nil
		folder := r.folder
		r.folder = filepath.Join(folder, "gone")
		d, err = r.dump(t, "vm-2.memory.dump")
		assert.NilError(t, err)
		assert.Equal(t, d.State, order.DumpFailed)
		r.folder = folder
		d, err = r.dump(t, "vm-3.memory.dump")
		assert.NilError(t, err)
		assert.Equal(t, d.State, order.DumpWriting)
	})
}

// TestRestart: a new shim ends the dump of a former one.
func TestRestart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		assert.NilError(t, os.WriteFile(filepath.Join(r.folder, "vm.memory.dump"), []byte("mem"), 0o600))
		on, _ := r.store.Container("c")
		assert.NilError(t, r.store.PutContainer(on.WithMemoryDump(record.MemoryDump{
			State: record.DumpWriting, Volume: "claim", Folder: r.folder, File: "vm.memory.dump"})))
		r.start(t)
		synctest.Wait()
		d := r.state(t)
		assert.Equal(t, d.State, order.DumpFailed)
		assert.Assert(t, strings.Contains(d.Message, "the shim restarted"))
		assert.Equal(t, r.files(t), "")
		assert.Equal(t, r.count(&r.cleared), 1)
		r.start(t)
		synctest.Wait()
		assert.Equal(t, r.count(&r.cleared), 1)
		_, err := r.dump(t, "again.memory.dump")
		assert.NilError(t, err)
		assert.Equal(t, r.state(t).State, order.DumpWriting)
	})
}

// TestEnd: the end of the VM cancels its dump.
func TestEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		_, err := r.dump(t, "vm.memory.dump")
		assert.NilError(t, err)
		ended := r.vm.Record()
		ended.State, ended.MemoryDump = record.Exited, nil
		r.vm.Publish(ended)
		synctest.Wait()
		assert.Equal(t, r.files(t), "")
		assert.Equal(t, r.state(t).State, order.DumpNone)
		if _, err := r.dump(t, "again.memory.dump"); !errors.Is(err, vmerrors.ErrState) {
			t.Errorf("a VM that has ended: %v", err)
		}
	})
}

// TestVolumeHangs: a volume that does not answer keeps nothing but its dump waiting, and for a bounded
// time; what is left behind of it is bounded, too.
func TestVolumeHangs(t *testing.T) {
	for name, during := range map[string]func(t *testing.T, r *rig){
		"create": func(t *testing.T, r *rig) {
			r.hang(make(chan struct{}))
			d, err := r.dump(t, "vm-1.memory.dump")
			assert.NilError(t, err)
			assert.Equal(t, d.State, order.DumpWriting)
		},
		"remove": func(t *testing.T, r *rig) {
			_, err := r.dump(t, "vm-1.memory.dump")
			assert.NilError(t, err)
			r.hang(make(chan struct{}))
			r.ends <- errors.New("the volume does not take the dump")
			synctest.Wait()
		},
		"restart": func(t *testing.T, r *rig) {
			on, _ := r.store.Container("c")
			assert.NilError(t, r.store.PutContainer(on.WithMemoryDump(record.MemoryDump{
				State: record.DumpWriting, Volume: "claim", Folder: r.folder, File: "vm-1.memory.dump"})))
			r.hang(make(chan struct{}))
			r.start(t)
			synctest.Wait()
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := newRig(t)
				during(t, r)
				r.turn(t)
				time.Sleep(2 * time.Minute)
				r.turn(t)
				d := r.state(t)
				assert.Equal(t, d.State, order.DumpFailed)
				_, err := r.dump(t, "vm-2.memory.dump")
				assert.Assert(t, errors.Is(err, vmerrors.ErrState))
				assert.ErrorContains(t, err, "the volume does not answer")
				close(r.hangs)
				r.hang(nil)
				synctest.Wait()
				_, err = r.dump(t, "vm-2.memory.dump")
				assert.NilError(t, err)
				r.ends <- nil
				synctest.Wait()
				assert.Equal(t, r.state(t).State, order.DumpCompleted)
				assert.Equal(t, r.files(t), "vm-2.memory.dump")
			})
		})
	}
}
