package domain

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"golang.org/x/sys/unix"
	"gotest.tools/v3/assert"
	"libvirt.org/go/libvirt"

	"github.com/nodevirt/nodevirt/imageunpack/qcow2"
	"github.com/nodevirt/nodevirt/shim/vmspec"
	"github.com/nodevirt/nodevirt/test/loopfs"
)

const backedUpSize = 64 << 20

// backedUp is a running guest with a raw disk.
type backedUp struct {
	*Driver
	libvirtd *libvirtd
	uuid     string
	path     string // of the disk
	dir      string
	pid      int
}

func newBackedUp(t *testing.T) *backedUp {
	t.Helper()
	l := startLibvirtd(t)
	d := startDriver(t)
	g := newGuest(t)
	b := &backedUp{Driver: d, libvirtd: l, uuid: g.UUID, dir: t.TempDir()}
	b.path = filepath.Join(b.dir, "disk.img")
	assert.NilError(t, os.WriteFile(b.path, nil, 0o600))
	assert.NilError(t, os.Truncate(b.path, backedUpSize))
	g.Spec.Disks = append(g.Spec.Disks, vmspec.Disk{Name: "data", Bus: vmspec.BusVirtio, Target: "vdb"})
	g.Disks = append(g.Disks, Disk{Layers: []Layer{{Format: "raw", Path: b.path, FDGroup: "data-0"}}})
	g.files["data-0"] = []*os.File{openFile(t, b.path, unix.O_RDWR)}
	define(t, d, g)
	pid, err := d.Lifecycle.Start(t.Context(), g.UUID, g.files)
	assert.NilError(t, err)
	assert.NilError(t, d.Lifecycle.Resume(t.Context(), g.UUID))
	b.pid = pid
	return b
}

// io does what the guest would do to the disk.
func (b *backedUp) io(t *testing.T, format string, args ...any) {
	t.Helper()
	assert.NilError(t, do(t.Context(), b.Connection, "test", b.uuid, func(dom *libvirt.Domain) error {
		out, err := query[string](dom, "human-monitor-command", map[string]any{
			"command-line": fmt.Sprintf(`qemu-io -d /machine/peripheral/ua-data/virtio-backend "%s"`, fmt.Sprintf(format, args...)),
		})
		t.Log(out)
		return err
	}))
}

// file makes the file of a backup.
func (b *backedUp) file(t *testing.T, path string, size int64) *os.File {
	t.Helper()
	f, err := os.OpenFile(path, os.O_CREATE|os.O_EXCL|os.O_RDWR, 0o600)
	assert.NilError(t, err)
	t.Cleanup(func() { f.Close() })
	n := qcow2.New{Size: size}
	assert.NilError(t, errors.Join(f.Truncate(n.Length()), n.Fill(f)))
	return f
}

func (b *backedUp) disks() []BackupDisk {
	return []BackupDisk{{Target: "vdb", Size: backedUpSize, Set: 0}}
}

// ended waits until QEMU has ended a backup, and returns why it failed.
func (b *backedUp) ended(t *testing.T) error {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	for {
		jobs, err := b.Backups.Jobs(ctx, b.uuid, b.disks())
		assert.NilError(t, err)
		assert.Equal(t, jobs.Found, 1)
		if jobs.Ended == 1 {
			assert.NilError(t, b.Backups.Close(ctx, b.uuid, b.disks()))
			ended, err := b.Backups.End(ctx, b.uuid, b.disks())
			assert.NilError(t, err)
			assert.Assert(t, ended)
			return jobs.Failed
		}
		time.Sleep(20 * time.Millisecond)
	}
}

// backUp makes a backup, and returns its file.
func (b *backedUp) backUp(t *testing.T, checkpoint, since string) string {
	t.Helper()
	path := filepath.Join(b.dir, checkpoint+".qcow2")
	f := b.file(t, path, backedUpSize)
	assert.NilError(t, b.Backups.Begin(t.Context(), b.uuid, Backup{Disks: b.disks(), Checkpoint: checkpoint, Since: since}, []*os.File{f}))
	assert.NilError(t, b.ended(t))
	assert.Equal(t, opened(t, b.pid, path), 0)
	return path
}

// equal restores a chain of backups, and compares it with the disk.
func (b *backedUp) equal(t *testing.T, chain ...string) {
	t.Helper()
	for i, path := range chain {
		tool(t, "qemu-img", "check", "-q", path)
		if i > 0 {
			tool(t, "qemu-img", "rebase", "-u", "-f", "qcow2", "-F", "qcow2", "-b", chain[i-1], path)
		}
	}
	tool(t, "qemu-img", "compare", "-U", "-f", "qcow2", "-F", "raw", chain[len(chain)-1], b.path)
}

func tool(t *testing.T, name string, args ...string) string {
	t.Helper()
	out, err := exec.CommandContext(t.Context(), name, args...).CombinedOutput()
	if err != nil {
		t.Fatalf("%s %q: %v: %s", name, args, err, out)
	}
	return string(out)
}

// allocated returns the size in bytes of the data in a qcow2 file.
func allocated(t *testing.T, path string) (n int64) {
	t.Helper()
	var ranges []struct {
		Length  int64 `json:"length"`
		Data    bool  `json:"data"`
		Present bool  `json:"present"`
	}
	assert.NilError(t, json.Unmarshal([]byte(tool(t, "qemu-img", "map", "--output=json", path)), &ranges))
	for _, r := range ranges {
		if r.Data && r.Present {
			n += r.Length
		}
	}
	return n
}

// TestBackup: a chain of a full backup and two increments is the disk, also of blocks that the guest
// has zeroed, and with a libvirtd that restarted. An increment has little more than was written.
func TestBackup(t *testing.T) {
	b := newBackedUp(t)
	b.io(t, "write -P 1 0 8M")
	full := b.backUp(t, "first", "")
	b.equal(t, full)
	const written = 5 << 20
	b.io(t, "write -P 2 6M %d", written)
	b.io(t, "write -z 1M 1M")
	second := b.backUp(t, "second", "first")
	if n := allocated(t, second); n > written*11/10 {
		t.Errorf("the increment has %d bytes, for %d that were written", n, written)
	}
	b.equal(t, full, second)

	b.libvirtd.kill(t)
	events, unsubscribe := b.Connection.Subscribe()
	defer unsubscribe()
	b.libvirtd.start(t)
	eventually(t, events, "of a new connection", func(e Event) bool { return e.Kind == EventResync })
	b.io(t, "write -P 3 40M 64k")
	third := b.backUp(t, "third", "second")
	b.equal(t, full, second, third)

	sources, err := b.Backups.Sources(t.Context(), b.uuid)
	assert.NilError(t, err)
	assert.DeepEqual(t, sources["vdb"], BackupSource{Size: backedUpSize, Checkpoints: []string{"first", "second", "third"}})
	assert.NilError(t, b.Backups.Keep(t.Context(), b.uuid, []string{"third", "other"}))
	sources, err = b.Backups.Sources(t.Context(), b.uuid)
	assert.NilError(t, err)
	assert.DeepEqual(t, sources["vdb"], BackupSource{Size: backedUpSize, Checkpoints: []string{"third"}})
	f := b.file(t, filepath.Join(b.dir, "none.qcow2"), backedUpSize)
	none := Backup{Disks: b.disks(), Since: "first"}
	if err := b.Backups.Begin(t.Context(), b.uuid, none, []*os.File{f}); !errors.Is(err, ErrChanged) {
		t.Errorf("a checkpoint that is gone: %v", err)
	}

	// A disk that grows loses its checkpoints.
	assert.NilError(t, b.Hotplug.Grow(t.Context(), b.uuid, Growth{Target: "vdb", Size: 2 * backedUpSize}, openFile(t, b.path, unix.O_RDONLY)))
	sources, err = b.Backups.Sources(t.Context(), b.uuid)
	assert.NilError(t, err)
	assert.DeepEqual(t, sources["vdb"], BackupSource{Size: 2 * backedUpSize})
}

// TestBackupFails: a backup that fails or is cancelled leaves the guest, and the checkpoint before,
// as they were, also if libvirtd is killed meanwhile.
func TestBackupFails(t *testing.T) {
	b := newBackedUp(t)
	b.io(t, "write -P 1 0 32M")
	full := b.backUp(t, "first", "")
	small, err := loopfs.New(t.TempDir(), loopfs.Ext4, 8<<20)
	assert.NilError(t, err)
	t.Cleanup(func() { _ = small.Close() })
	b.io(t, "write -P 2 0 24M")
	f := b.file(t, filepath.Join(small.Path, "a.qcow2"), backedUpSize)
	assert.NilError(t, b.Backups.Begin(t.Context(), b.uuid, Backup{Disks: b.disks(), Checkpoint: "lost", Since: "first"}, []*os.File{f}))
	assert.ErrorContains(t, b.ended(t), "No space left on device")
	running(t, b.Driver, b.uuid)
	assert.NilError(t, b.Backups.Keep(t.Context(), b.uuid, []string{"first"}))

	f = b.file(t, filepath.Join(b.dir, "cancelled.qcow2"), backedUpSize)
	assert.NilError(t, b.Backups.Begin(t.Context(), b.uuid, Backup{Disks: b.disks(), Checkpoint: "lost", Since: "first"}, []*os.File{f}))
	events, unsubscribe := b.Connection.Subscribe()
	defer unsubscribe()
	b.libvirtd.kill(t)
	b.libvirtd.start(t)
	eventually(t, events, "of a new connection", func(e Event) bool { return e.Kind == EventResync })
	for range 100 {
		ended, err := b.Backups.End(t.Context(), b.uuid, b.disks())
		assert.NilError(t, err)
		if ended {
			break
		}
		time.Sleep(20 * time.Millisecond)
	}
	assert.NilError(t, b.Backups.Close(t.Context(), b.uuid, b.disks()))
	jobs, err := b.Backups.Jobs(t.Context(), b.uuid, b.disks())
	assert.NilError(t, err)
	assert.Equal(t, jobs.Found, 0)
	assert.NilError(t, b.Backups.Keep(t.Context(), b.uuid, []string{"first"}))
	second := b.backUp(t, "second", "first")
	b.equal(t, full, second)
}

// TestCheckpointsEnd: a guest with checkpoints can be saved, and a disk that is detached takes its checkpoints along.
func TestCheckpointsEnd(t *testing.T) {
	b := newBackedUp(t)
	b.backUp(t, "first", "")
	hot, file := plugged(t, "sda", 0)
	assert.NilError(t, b.Hotplug.Attach(t.Context(), b.uuid, hot, file))
	disks := []BackupDisk{{Target: "sda", Size: 1 << 20, Set: 1}}
	f := b.file(t, filepath.Join(b.dir, "hot.qcow2"), 1<<20)
	assert.NilError(t, b.Backups.Renew(t.Context(), b.uuid, 0, openFile(t, hot.Layer.Path, unix.O_RDONLY)))
	assert.NilError(t, b.Backups.Begin(t.Context(), b.uuid, Backup{Disks: disks, Checkpoint: "hot"}, []*os.File{f}))
	for ended := false; !ended; {
		var err error
		ended, err = b.Backups.End(t.Context(), b.uuid, disks)
		assert.NilError(t, err)
	}
	assert.NilError(t, b.Backups.Close(t.Context(), b.uuid, disks))
	has := func(want bool) {
		t.Helper()
		all, err := b.Backups.Sources(t.Context(), b.uuid)
		assert.NilError(t, err)
		assert.Equal(t, len(all["sda"].Checkpoints) == 1, want)
		assert.DeepEqual(t, all["vdb"].Checkpoints, []string{"first"})
	}
	has(true)
	assert.NilError(t, b.Hotplug.Request(t.Context(), b.uuid, "sda"))
	assert.NilError(t, b.Hotplug.Release(t.Context(), b.uuid, 0))
	has(false)
	assert.NilError(t, file.Close()) // and its locks
	assert.NilError(t, b.Hotplug.Attach(t.Context(), b.uuid, hot, openFile(t, hot.Layer.Path, unix.O_RDWR)))
	has(false)

	assert.NilError(t, b.Hotplug.Request(t.Context(), b.uuid, "sda")) // a VM with such disks is not saved
	assert.NilError(t, b.Hotplug.Release(t.Context(), b.uuid, 0))
	assert.NilError(t, b.Lifecycle.Pause(t.Context(), b.uuid))
	memory, err := os.Create(filepath.Join(b.dir, "memory"))
	assert.NilError(t, err)
	defer memory.Close()
	assert.NilError(t, b.Lifecycle.SaveMemory(t.Context(), b.uuid, memory))
	assert.NilError(t, b.Lifecycle.Resume(t.Context(), b.uuid))
	has(false)
}
