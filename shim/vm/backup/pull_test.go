package backup_test

import (
	"errors"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"gotest.tools/v3/assert"

	"github.com/nodevirt/nodevirt/shim/domain"
	"github.com/nodevirt/nodevirt/shim/vm/hotplug/order"
	"github.com/nodevirt/nodevirt/shim/vm/vmerrors"
)

// pull begins a pull backup, and waits until it is ready.
func (r *rig) pull(t *testing.T, name, since string) {
	t.Helper()
	a := about(name, since)
	a.Pull = true
	b, err := r.order(order.BackUp, a)
	assert.NilError(t, err)
	assert.Equal(t, b.State, order.BackupReady, b.Message)
}

func (r *rig) serve(t *testing.T, name, container string) order.Backup {
	t.Helper()
	b, err := r.order(order.BackupServe, order.BackupReaders{Name: name, Container: container})
	assert.NilError(t, err)
	assert.Equal(t, b.Readers, container)
	return b
}

// socket reports whether readers have a socket.
func (r *rig) socket() bool {
	info, err := os.Stat(filepath.Join(r.sockets, order.SocketFile))
	return err == nil && info.Mode().Type() == os.ModeSocket && info.Mode().Perm() == 0o666
}

// TestPull: QEMU serves the disks to a container, and to the next one. The backup is complete when it is
// finished: then its checkpoint stays, and nothing else does.
func TestPull(t *testing.T) {
	assert.Equal(t, order.ChangesContext, "qemu:dirty-bitmap:"+domain.ChangesBitmap)
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		r.pull(t, "b1", "")
		assert.Equal(t, r.files(t), "b1-data.qcow2.partial b1-root.qcow2.partial")
		assert.Assert(t, !r.frozen && r.vm.Record().BackingUp() && r.served == nil)
		for range 2 {
			r.serve(t, "b1", id)
		}
		assert.DeepEqual(t, r.served, []domain.ServedDisk{{Target: "vda", Name: "root"}, {Target: "vdb", Name: "data"}})
		assert.Assert(t, r.socket())
		r.served, r.deaf = nil, errors.New("no server")
		if _, err := r.order(order.BackupServe, order.BackupReaders{Name: "b1", Container: strings.Repeat("b", 64)}); !errors.Is(err, r.deaf) {
			t.Errorf("QEMU serves no other container: %v", err)
		}
		r.deaf = nil
		r.serve(t, "b1", id) // again: it was without QEMU
		assert.Equal(t, len(r.served), 2)
		r.served = nil
		r.serve(t, "b1", strings.Repeat("b", 64))
		assert.Equal(t, len(r.served), 2)
		if _, err := r.order(order.BackUp, about("b2", "")); !errors.Is(err, vmerrors.ErrState) {
			t.Errorf("another backup meanwhile: %v", err)
		}
		b, err := r.order(order.BackupFinish, order.Name{Name: "b1"})
		assert.NilError(t, err)
		assert.Equal(t, b.State, order.BackupCompleted, b.Message)
		assert.Equal(t, b.Quiesce, order.QuiesceSucceeded)
		assert.Assert(t, !b.Incremental && r.files(t) == "" && !r.socket() && r.served == nil && len(r.jobs) == 0 && r.open == 0)
		assert.DeepEqual(t, r.disks["vda"].checkpoints, []string{"b1"})
		if _, err := r.order(order.BackupServe, order.BackupReaders{Name: "b1", Container: id}); !errors.Is(err, vmerrors.ErrState) {
			t.Errorf("readers of a backup that is complete: %v", err)
		}

		r.pull(t, "b2", "b1")
		assert.Assert(t, r.serve(t, "b2", id).Incremental)
		assert.DeepEqual(t, r.served[0], domain.ServedDisk{Target: "vda", Name: "root", Changes: true})
	})
}

// TestPullFails: a pull backup that fails serves nothing, and leaves neither a file nor a checkpoint.
func TestPullFails(t *testing.T) {
	for why, one := range map[string]struct {
		message string
		do      func(t *testing.T, r *rig)
	}{
		"cancelled": {"cancelled", func(t *testing.T, r *rig) {
			t.Helper()
			_, err := r.order(order.BackupCancel, order.Name{Name: "b2"})
			assert.NilError(t, err)
		}},
		"ended":   {"QEMU ended the backup's jobs", func(_ *testing.T, r *rig) { r.finish(nil) }},
		"failed":  {"no such disk", func(_ *testing.T, r *rig) { r.finish(errors.New("no such disk")) }},
		"lost":    {"QEMU does not have the backup's jobs", func(_ *testing.T, r *rig) { r.locked(func() { clear(r.jobs) }) }},
		"full":    {"the backup's volume is nearly full", func(_ *testing.T, r *rig) { r.locked(func() { r.full = true }) }},
		"stalled": {"stopped the guest", func(_ *testing.T, r *rig) { r.locked(func() { r.stalled = true }) }},
	} {
		t.Run(why, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := newRig(t)
				r.ended(t, about("b1", ""))
				r.pull(t, "b2", "b1")
				r.serve(t, "b2", id)
				one.do(t, r)
				time.Sleep(20 * time.Second)
				synctest.Wait()
				b, err := r.order(order.BackupFinish, order.Name{Name: "b2"})
				assert.NilError(t, err)
				assert.Equal(t, b.State, order.BackupFailed)
				assert.Assert(t, strings.Contains(b.Message, one.message), b.Message)
				assert.Equal(t, r.files(t), "b1-data.qcow2 b1-root.qcow2")
				assert.DeepEqual(t, r.disks["vda"].checkpoints, []string{"b1"})
				assert.Assert(t, !r.socket() && r.served == nil && len(r.jobs) == 0 && r.open == 0)
			})
		})
	}
}

// TestPullRecovers: the next shim follows a pull backup, and completes one whose readers were done.
func TestPullRecovers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		r.pull(t, "b1", "")
		r.serve(t, "b1", id)
		r.tasks.Stop()
		r.start(t)
		synctest.Wait()
		assert.Equal(t, r.serve(t, "b1", id).State, order.BackupReady)
		assert.Equal(t, len(r.served), 2)
		r.tasks.Stop()
		c := r.vm.Record()
		one := *c.Backup
		one.Finished, one.Pulled, one.Ending = true, true, true
		assert.NilError(t, r.store.PutContainer(c.WithBackup(one)))
		clear(r.jobs) // the shim ended them, and could not record it
		r.start(t)
		time.Sleep(time.Second)
		synctest.Wait()
		b, err := r.order(order.BackupStatus, order.Name{Name: "b1"})
		assert.NilError(t, err)
		assert.Equal(t, b.State, order.BackupCompleted, b.Message)
		assert.DeepEqual(t, r.disks["vda"].checkpoints, []string{"b1"})
	})
}

// TestReaders: only a container of an attachment pod of the VM with an emptyDir reads, and only a backup
// that is ready. A link in the emptyDir leads nowhere.
func TestReaders(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		refused := func(want error) {
			t.Helper()
			if _, err := r.order(order.BackupServe, order.BackupReaders{Name: "b1", Container: id}); !errors.Is(err, want) {
				t.Errorf("%v; want %v", err, want)
			}
			assert.Assert(t, r.served == nil)
		}
		refused(vmerrors.ErrState)
		r.pull(t, "b1", "")
		r.owner = "another"
		refused(vmerrors.ErrInvalid)
		r.owner = podUID
		sockets := r.sockets
		r.sockets = t.TempDir() // no emptyDir
		refused(vmerrors.ErrInvalid)
		r.sockets = sockets
		r.deaf = errors.New("no server")
		refused(r.deaf)
		assert.Assert(t, !r.socket())
		r.deaf = nil
		target := filepath.Join(t.TempDir(), "target")
		assert.NilError(t, os.Symlink(target, filepath.Join(r.sockets, order.SocketFile)))
		r.serve(t, "b1", id)
		assert.Assert(t, r.socket())
		if _, err := os.Lstat(target); !os.IsNotExist(err) {
			t.Errorf("the link's target: %v", err)
		}
		_, err := net.Dial("unix", filepath.Join(r.sockets, order.SocketFile)) // the fake QEMU does not listen
		assert.Assert(t, err != nil)
	})
}
