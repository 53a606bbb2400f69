package backup_test

import (
	"errors"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"gotest.tools/v3/assert"

	"github.com/nodevirt/nodevirt/shim/record"
	"github.com/nodevirt/nodevirt/shim/vm/hotplug/order"
	"github.com/nodevirt/nodevirt/shim/vm/vmerrors"
	"github.com/nodevirt/nodevirt/shim/vmspec"
)

// TestChain: an order answers while QEMU copies, and the files get their names when all are complete.
// A later backup has what has changed since, and the checkpoints that nothing follows are forgotten.
func TestChain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		first := about("b1", "")
		for range 2 {
			b, err := r.order(order.BackUp, first)
			assert.NilError(t, err)
			assert.Equal(t, b.State, order.BackupWriting)
		}
		assert.Equal(t, r.begins, 1)
		assert.Assert(t, r.vm.Record().BackingUp())
		assert.Equal(t, r.files(t), "b1-data.qcow2.partial b1-root.qcow2.partial")
		if _, err := r.order(order.BackUp, about("b2", "")); !errors.Is(err, vmerrors.ErrState) {
			t.Errorf("another backup meanwhile: %v", err)
		}
		b := r.ended(t, first)
		assert.Equal(t, b.State, order.BackupCompleted, b.Message)
		assert.Equal(t, b.Quiesce, order.QuiesceSucceeded)
		assert.Assert(t, !b.Incremental && b.Warning == "" && !b.Start.IsZero() && b.End.After(b.Start))
		assert.DeepEqual(t, b.Disks, []order.BackedUp{{Disk: "root", Target: "vda"}, {Disk: "data", Target: "vdb"}})
		assert.Equal(t, r.files(t), "b1-data.qcow2 b1-root.qcow2")
		assert.Assert(t, !r.frozen && len(r.jobs) == 0 && r.open == 0)

		second := about("b2", "b1")
		second.Keep = []string{"other"}
		b = r.ended(t, second)
		assert.Equal(t, b.State, order.BackupCompleted, b.Message)
		assert.Assert(t, b.Incremental)
		assert.DeepEqual(t, r.disks["vda"].checkpoints, []string{"b1", "b2"})
		b = r.ended(t, about("b3", "b2"))
		assert.Assert(t, b.Incremental)
		assert.DeepEqual(t, r.disks["vda"].checkpoints, []string{"b2", "b3"})
		assert.Equal(t, r.files(t), "b1-data.qcow2 b1-root.qcow2 b2-data.qcow2 b2-root.qcow2 b3-data.qcow2 b3-root.qcow2")
	})
}

// TestFull: a backup whose checkpoint a disk does not have is full, and says so.
func TestFull(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		r.ended(t, about("b1", ""))
		r.disks["vdb"].checkpoints = nil // another QEMU, or the disk was attached again
		b := r.ended(t, about("b2", "b1"))
		assert.Equal(t, b.State, order.BackupCompleted, b.Message)
		assert.Assert(t, !b.Incremental)
		assert.Assert(t, strings.Contains(b.Warning, "the backup is full: not all changes of disk data since checkpoint b1 are known"), b.Warning)

		shared := about("b3", "b2")
		shared.Disks = append(shared.Disks, order.BackupFile{Disk: "shared", File: "b3-shared.qcow2"})
		b = r.ended(t, shared)
		assert.Assert(t, !b.Incremental && strings.Contains(b.Warning, "other VMs may write to it"), b.Warning)
	})
}

// TestPlugged: a disk that the VM has got since it runs is prepared, and one that is not attached refused.
func TestPlugged(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		r.disks["sdz"] = &qemuDisk{}
		c := r.vm.Record()
		c.Plugged = []record.PluggedDisk{{State: record.Attaching, Set: 7, Disk: vmspec.Disk{Name: "hot", Source: vmspec.SourcePVC, Target: "sdz"}}}
		r.vm.Publish(c)
		a := about("b1", "")
		a.Disks = append(a.Disks, order.BackupFile{Disk: "hot", File: "b1-hot.qcow2"})
		if _, err := r.order(order.BackUp, a); !errors.Is(err, vmerrors.ErrInvalid) {
			t.Errorf("a disk that is being attached: %v", err)
		}
		c.Plugged = []record.PluggedDisk{c.Plugged[0]}
		c.Plugged[0].State = record.Attached
		r.vm.Publish(c)
		b := r.ended(t, a)
		assert.Equal(t, b.State, order.BackupCompleted, b.Message)
		assert.DeepEqual(t, r.renewed, []int{7})
		assert.Equal(t, len(b.Disks), 3)
	})
}

// TestQuiesce: a backup of a guest that is not frozen says so.
func TestQuiesce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		r.unable = errors.New("no agent")
		b := r.ended(t, about("b1", ""))
		assert.Equal(t, b.State, order.BackupCompleted)
		assert.Equal(t, b.Quiesce, order.QuiesceFailed)
		assert.Equal(t, b.Warning, "the guest's file systems were not frozen: no agent")
		r.unable, r.thaws = nil, true
		b = r.ended(t, about("b2", ""))
		assert.Equal(t, b.Quiesce, order.QuiesceFailed)
		assert.Assert(t, strings.Contains(b.Warning, "the guest thawed them"), b.Warning)
		skipped := about("b3", "")
		skipped.Quiesce = false
		b = r.ended(t, skipped)
		assert.Assert(t, b.Quiesce == order.QuiesceSkipped && b.Warning == "")
	})
}

// TestFailures: a backup that fails leaves no file, no checkpoint and no job, and the former
// checkpoint stays.
func TestFailures(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		r.ended(t, about("b1", ""))
		undone := func(what, message string, b order.Backup) {
			t.Helper()
			assert.Equal(t, b.State, order.BackupFailed, what)
			assert.Assert(t, strings.Contains(b.Message, message), "%s: %s", what, b.Message)
			assert.Equal(t, r.files(t), "b1-data.qcow2 b1-root.qcow2", what)
			assert.DeepEqual(t, r.disks["vda"].checkpoints, []string{"b1"})
			assert.Assert(t, len(r.jobs) == 0 && r.open == 0 && !r.frozen, what)
		}
		failed := func(a order.BackupFiles) order.Backup {
			t.Helper()
			_, err := r.order(order.BackUp, a)
			assert.NilError(t, err)
			time.Sleep(10 * time.Second)
			synctest.Wait()
			b, err := r.order(order.BackupStatus, order.Name{Name: a.Name})
			assert.NilError(t, err)
			return b
		}
		r.refuse = errors.New("no transaction")
		undone("QEMU refuses", "no transaction", failed(about("b2", "b1")))
		r.refuse = nil

		_, err := r.order(order.BackUp, about("b3", "b1"))
		assert.NilError(t, err)
		r.finish(errors.New("no space"))
		undone("a job fails", "no space", failed(about("b3", "b1")))

		_, err = r.order(order.BackUp, about("b4", "b1"))
		assert.NilError(t, err)
		b, err := r.order(order.BackupCancel, order.Name{Name: "b4"})
		assert.NilError(t, err)
		undone("cancelled", "cancelled", b)
		_, err = r.order(order.BackupCancel, order.Name{Name: "b4"})
		assert.NilError(t, err)

		folder := r.folder
		r.folder = filepath.Join(folder, "gone")
		b = failed(about("b5", "b1"))
		r.folder = folder
		undone("the volume is gone", "no such file", b)
		assert.Assert(t, r.ended(t, about("b6", "b1")).Incremental)
	})
}

// TestRestart: a new shim follows the jobs of a former one, or undoes a backup without jobs.
func TestRestart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		_, err := r.order(order.BackUp, about("b1", ""))
		assert.NilError(t, err)
		r.tasks.Stop()
		assert.Assert(t, r.vm.Record().BackingUp())
		r.finish(nil)
		r.start(t)
		time.Sleep(time.Second)
		synctest.Wait()
		b, err := r.order(order.BackupStatus, order.Name{Name: "b1"})
		assert.NilError(t, err)
		assert.Equal(t, b.State, order.BackupCompleted, b.Message)
		assert.Equal(t, r.files(t), "b1-data.qcow2 b1-root.qcow2")

		_, err = r.order(order.BackUp, about("b2", "b1"))
		assert.NilError(t, err)
		r.tasks.Stop()
		clear(r.jobs) // as if QEMU had not begun
		r.start(t)
		time.Sleep(time.Second)
		synctest.Wait()
		b, err = r.order(order.BackupStatus, order.Name{Name: "b2"})
		assert.NilError(t, err)
		assert.Equal(t, b.State, order.BackupFailed)
		assert.Equal(t, r.files(t), "b1-data.qcow2 b1-root.qcow2")
		assert.DeepEqual(t, r.disks["vda"].checkpoints, []string{"b1"})
	})
}

// TestEnd: the end of the VM is that of its backup.
func TestEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		_, err := r.order(order.BackUp, about("b1", ""))
		assert.NilError(t, err)
		ended := r.vm.Record()
		ended.State, ended.Backup = record.Exited, nil
		r.vm.Publish(ended)
		synctest.Wait()
		assert.Equal(t, r.files(t), "")
		b, err := r.order(order.BackupStatus, order.Name{Name: "b1"})
		assert.NilError(t, err)
		assert.Equal(t, b.State, order.BackupNone)
		if _, err := r.order(order.BackUp, about("b2", "")); !errors.Is(err, vmerrors.ErrState) {
			t.Errorf("a VM that has ended: %v", err)
		}
	})
}

// TestRefusals: what no backup can have is refused before anything is written.
func TestRefusals(t *testing.T) {
	r := newRig(t)
	invalid := map[string]func(a *order.BackupFiles){
		"volume":      func(a *order.BackupFiles) { a.Volume = "../x" },
		"other":       func(a *order.BackupFiles) { a.Volume = "other" },
		"no disks":    func(a *order.BackupFiles) { a.Disks = nil },
		"folder":      func(a *order.BackupFiles) { a.Folder = "../x" },
		"deep":        func(a *order.BackupFiles) { a.Folder = "a/b/c" },
		"absolute":    func(a *order.BackupFiles) { a.Folder = "/a" },
		"hidden":      func(a *order.BackupFiles) { a.Folder = "a/.b" },
		"file":        func(a *order.BackupFiles) { a.Disks[0].File = "../a.qcow2" },
		"suffix":      func(a *order.BackupFiles) { a.Disks[0].File = "a.raw" },
		"repeated":    func(a *order.BackupFiles) { a.Disks[1] = a.Disks[0] },
		"unknown":     func(a *order.BackupFiles) { a.Disks[0].Disk = "none" },
		"image":       func(a *order.BackupFiles) { a.Disks[0].Disk = "image" },
		"cd":          func(a *order.BackupFiles) { a.Disks[0].Disk = "cd" },
		"lun":         func(a *order.BackupFiles) { a.Disks[0].Disk = "lun" },
		"checkpoint":  func(a *order.BackupFiles) { a.Checkpoint = "a:b" },
		"since":       func(a *order.BackupFiles) { a.Since = "a b" },
		"checkpoints": func(a *order.BackupFiles) { a.Keep = slices.Repeat([]string{"a"}, order.MaxCheckpoints+1) },
		"name":        func(a *order.BackupFiles) { a.Name = "" },
	}
	for what, change := range invalid {
		a := about("b1", "")
		change(&a)
		if _, err := r.order(order.BackUp, a); !errors.Is(err, vmerrors.ErrInvalid) {
			t.Errorf("%s: %v", what, err)
		}
	}
	r.owner = "another"
	if _, err := r.order(order.BackUp, about("b1", "")); !errors.Is(err, vmerrors.ErrInvalid) {
		t.Errorf("a stranger's pod: %v", err)
	}
	r.owner, r.moving = podUID, true
	if _, err := r.order(order.BackUp, about("b1", "")); !errors.Is(err, vmerrors.ErrState) {
		t.Errorf("a guest that moves: %v", err)
	}
	r.moving = false
	for what, change := range map[string]func(c *record.Container){
		"dumping":  func(c *record.Container) { c.MemoryDump = &record.MemoryDump{State: record.DumpWriting} },
		"saving":   func(c *record.Container) { c.Saving = &record.Saving{} },
		"frozen":   func(c *record.Container) { c.Freeze = &record.Freeze{} },
		"incoming": func(c *record.Container) { c.Incoming = "m" },
	} {
		before := r.vm.Record()
		now := before
		change(&now)
		r.vm.Publish(now)
		if _, err := r.order(order.BackUp, about("b1", "")); !errors.Is(err, vmerrors.ErrState) {
			t.Errorf("%s: %v", what, err)
		}
		r.vm.Publish(before)
	}
	assert.Equal(t, r.begins, 0)
	assert.Equal(t, r.files(t), "")
	if _, err := r.Do(t.Context(), r.vm, order.BackUp, "{"); !errors.Is(err, vmerrors.ErrInvalid) {
		t.Errorf("no JSON: %v", err)
	}
}
