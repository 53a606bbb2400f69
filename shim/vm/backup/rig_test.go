package backup_test

import (
	"context"
	"encoding/json"
	"io/fs"
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
	"github.com/nodevirt/nodevirt/shim/record"
	"github.com/nodevirt/nodevirt/shim/vm/background"
	"github.com/nodevirt/nodevirt/shim/vm/backup"
	"github.com/nodevirt/nodevirt/shim/vm/hotplug/order"
	"github.com/nodevirt/nodevirt/shim/vm/table"
	"github.com/nodevirt/nodevirt/shim/vm/vmtest"
	"github.com/nodevirt/nodevirt/shim/vmspec"
)

const podUID = "0d2c5a5e-0000-4000-8000-000000000001"

var id = strings.Repeat("a", 64)

// rig is Backups on a fake QEMU. The files are real.
type rig struct {
	*backup.Backups
	*qemu
	store  *vmtest.Store
	vm     *table.VM
	folder string
	// sockets is the emptyDir of the pods of readers. full says that the volume is full.
	sockets string
	full    bool
	owner   string // the pod that the attachment pod names
	moving  bool

	// frozen is the guest's state. unable has why it cannot be frozen, thaws says that it thaws itself.
	frozen bool
	unable error
	thaws  bool
	tasks  *background.Tasks

	mu sync.Mutex
	// hangs keeps the named accesses to the volume from ending until it is closed.
	hangs map[string]chan struct{}
}

// answer waits as long as an access to the volume hangs.
func (r *rig) answer(access string) {
	r.mu.Lock()
	hangs := r.hangs[access]
	r.mu.Unlock()
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
	r := &rig{store: vmtest.NewStore(&vmtest.Script{}, t.TempDir()), folder: t.TempDir(), owner: podUID, hangs: map[string]chan struct{}{}}
	r.sockets = filepath.Join(t.TempDir(), "kubernetes.io~empty-dir", "socket")
	assert.NilError(t, os.MkdirAll(r.sockets, 0o755))
	r.qemu = newQEMU("vda", "vdb", "sda")
	c := record.Container{ID: "c", SandboxID: "s", State: record.Running, Domain: record.Domain{Name: "d", UUID: "u"}}
	c.Spec.Disks = []vmspec.Disk{
		{Name: "root", Source: vmspec.SourcePVC, Target: "vda"}, {Name: "data", Source: vmspec.SourcePVC, Target: "vdb"},
		{Name: "shared", Source: vmspec.SourcePVC, Target: "sda", Shareable: true}, {Name: "image", Source: vmspec.SourceImage, Target: "vdc"},
		{Name: "cd", Source: vmspec.SourcePVC, Target: "sdb", CDROM: true}, {Name: "lun", Source: vmspec.SourcePVC, Target: "sdc", LUN: true},
	}
	c.Sandbox.Value = &runtimeapi.PodSandboxConfig{Metadata: &runtimeapi.PodSandboxMetadata{Name: "pod", Namespace: "shop", Uid: podUID}}
	c.Config.Value = &runtimeapi.ContainerConfig{Metadata: &runtimeapi.ContainerMetadata{Name: "vm"}}
	assert.NilError(t, r.store.PutContainer(c))
	r.start(t)
	return r
}

// start starts a shim, which reads the record.
func (r *rig) start(t *testing.T) {
	t.Helper()
	r.tasks = background.New()
	t.Cleanup(r.tasks.Stop)
	vms := table.New(r.store, 1000, 4)
	on, _ := r.store.Container("c")
	r.vm = vms.Recover(on)
	r.Backups = backup.New(backup.Options{
		Table: vms, Tasks: r.tasks, Domains: r.qemu, Files: volume{r}, Volumes: r, Freezes: r, Moves: r, Pods: r, Conditions: r,
		Logger: slog.New(slog.NewTextHandler(t.Output(), nil)),
	})
	r.Recover()
}

// volume is the real volume, which may be full.
type volume struct{ *rig }

func (v volume) Create(b record.Backup) ([]*os.File, error) {
	v.answer("create")
	return disk.Backups{}.Create(b)
}

func (v volume) Complete(b record.Backup) error {
	v.answer("complete")
	return disk.Backups{}.Complete(b)
}

func (v volume) Remove(b record.Backup) error {
	v.answer("remove")
	return disk.Backups{}.Remove(b)
}

func (volume) Unlisten(folder, name string) error { return disk.Backups{}.Unlisten(folder, name) }

func (volume) Listen(folder, name string) (*os.File, error) {
	return disk.Backups{}.Listen(folder, name)
}

func (v volume) Room(b record.Backup) (free, size int64, err error) {
	v.answer("room")
	free, size, err = disk.Backups{}.Room(b)
	v.qemu.mu.Lock()
	defer v.qemu.mu.Unlock()
	if v.full {
		free = 0
	} else {
		free = max(free, size) // the machine's own disk is no part of the test
	}
	return free, size, err
}

func (r *rig) Moving(*table.VM) bool { return r.moving }
func (r *rig) Update(*table.VM)      {}

func (r *rig) Room(record.Container, vmspec.Disk, int64) (*os.File, int64, error) {
	f, err := os.Open(os.DevNull)
	return f, 0, err
}

func (r *rig) Freeze(context.Context, *table.VM, time.Duration) error {
	r.qemu.mu.Lock()
	defer r.qemu.mu.Unlock()
	r.frozen = r.unable == nil
	r.begun = func() { r.frozen = r.frozen && !r.thaws }
	return r.unable
}

func (r *rig) Frozen(context.Context, *table.VM) (bool, error) {
	r.qemu.mu.Lock()
	defer r.qemu.mu.Unlock()
	return r.frozen, nil
}

func (r *rig) Thaw(context.Context, *table.VM) error {
	r.qemu.mu.Lock()
	defer r.qemu.mu.Unlock()
	r.frozen = false
	return nil
}

func (r *rig) ContainerStatus(context.Context, *runtimeapi.ContainerStatusRequest, ...grpc.CallOption) (*runtimeapi.ContainerStatusResponse, error) {
	info, err := json.Marshal(map[string]any{"sandboxID": "hp", "config": &runtimeapi.ContainerConfig{
		Metadata: &runtimeapi.ContainerMetadata{Name: "volumes"},
		Mounts: []*runtimeapi.Mount{
			{ContainerPath: "/volumes/claim", HostPath: r.folder}, {ContainerPath: "/run/" + order.SocketVolume, HostPath: r.sockets, Readonly: true},
		},
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

func (r *rig) order(control string, argument any) (order.Backup, error) {
	text, err := json.Marshal(argument)
	if err != nil {
		return order.Backup{}, err
	}
	var b order.Backup
	if text, err = r.Do(context.Background(), r.vm, control, string(text)); err == nil {
		err = json.Unmarshal(text, &b)
	}
	return b, err
}

// about is an order for a backup of two disks.
func about(name, since string) order.BackupFiles {
	return order.BackupFiles{
		Name: name, Volume: "claim", Container: id, Folder: "vm/" + name, Checkpoint: name, Since: since, Quiesce: true,
		Disks: []order.BackupFile{{Disk: "root", File: name + "-root.qcow2"}, {Disk: "data", File: name + "-data.qcow2"}},
	}
}

// ended orders a backup that QEMU can end, and returns its result.
func (r *rig) ended(t *testing.T, a order.BackupFiles) order.Backup {
	t.Helper()
	b, err := r.order(order.BackUp, a)
	assert.NilError(t, err)
	assert.Equal(t, b.State, order.BackupWriting, b.Message)
	r.finish(nil)
	time.Sleep(time.Second)
	synctest.Wait()
	b, err = r.order(order.BackUp, a)
	assert.NilError(t, err)
	return b
}

// files returns the names in the volume.
func (r *rig) files(t *testing.T) string {
	t.Helper()
	var names []string
	assert.NilError(t, filepath.WalkDir(r.folder, func(_ string, d fs.DirEntry, err error) error {
		if !d.IsDir() {
			names = append(names, d.Name())
		}
		return err
	}))
	return strings.Join(names, " ")
}
