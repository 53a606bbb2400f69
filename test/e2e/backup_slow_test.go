//go:build slow

package e2e

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"gotest.tools/v3/assert"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/nodevirt/nodevirt/shim/vm/hotplug/order"
	"github.com/nodevirt/nodevirt/test/node"
	"github.com/nodevirt/nodevirt/test/wait"
)

// TestBackupFaults is not parallel: all tests share the shim. A backup goes on while the shim is gone.
// One that is cancelled, or whose QEMU is killed, leaves nothing, and the former checkpoint stays good.
func TestBackupFaults(t *testing.T) {
	b := backUpPods(t, "faults", 256*mebibyte)
	full, _ := b.backUp("full", "")
	begin := func(name string) {
		t.Helper()
		request := b.request(name, "")
		request.Keep, request.Quiesce = []string{"full"}, false
		go func() {
			for t.Context().Err() == nil { // an order may be repeated, and is refused while the guest is frozen
				if _, err := b.order(order.BackUp, request); err == nil {
					return
				}
				time.Sleep(100 * time.Millisecond)
			}
		}()
		wait.Until(t, "the backup begins", func() bool {
			info, err := os.Stat(filepath.Join(b.folder, "vm", name, "files.qcow2.partial"))
			return err == nil && info.Size() > 8*mebibyte
		})
	}
	nothing := func(name string) {
		t.Helper()
		wait.Until(t, "nothing is left of backup "+name, func() bool {
			_, err := os.Stat(filepath.Join(b.folder, "vm", name))
			return os.IsNotExist(err)
		})
	}

	b.dirty(mebibyte, mebibyte)
	begin("killed")
	assert.NilError(t, suite.Kill(t.Context(), node.Shim, syscall.SIGKILL))
	assert.NilError(t, suite.Resume(t.Context(), node.Shim))
	answer := b.ended("killed") // QEMU had begun
	assert.Equal(t, answer.State, order.BackupCompleted, answer.Message)
	b.equal(b.paths("killed"))

	begin("cancelled")
	cancelled, err := b.order(order.BackupCancel, order.Name{Name: "cancelled"})
	assert.NilError(t, err)
	assert.Equal(t, cancelled.State, order.BackupFailed, "%+v", cancelled)
	nothing("cancelled")

	again, answer := b.backUp("again", "full")
	assert.Assert(t, answer.Incremental, "%+v", answer)
	b.equal(full, again)

	begin("dead")
	inNode(t, "kill", "-9", fmt.Sprint(b.pid()))
	b.container.ended()
	nothing("dead")
}

// TestBackupHotplug: a disk that a running guest has got is in a full backup, and in an increment.
func TestBackupHotplug(t *testing.T) {
	t.Parallel()
	b := backUpPods(t, "hotplug", mebibyte)
	folder := filepath.Join(filepath.Dir(b.folder), "hot")
	assert.NilError(t, os.MkdirAll(folder, 0o755))
	disk := filepath.Join(folder, "disk.img")
	assert.NilError(t, os.WriteFile(disk, make([]byte, 16*mebibyte), 0o600))
	attachment := runPod(t, "", named("hot"), annotated(map[string]string{"nodevirt.io/attachment": b.pod.config.Metadata.Uid}))
	config := attachment.newContainer("volumes", suite.busybox)
	config.Command = []string{"sleep", "1000000"}
	config.Mounts = append(config.Mounts, &runtimeapi.Mount{ContainerPath: "/volumes/hot", HostPath: folder})
	volumes := attachment.create(config).start()
	assert.Equal(t, b.plug("disk-attach", fmt.Sprintf(`{"disk": {"name": "hot"}, "container": %q}`, volumes.id)).State, "attached")
	name := b.scsiDisk("hot", true)
	backUp := func(name, since string) (string, order.Backup) {
		t.Helper()
		request := b.request(name, since)
		request.Disks = []order.BackupFile{{Disk: "hot", File: "hot.qcow2"}}
		_, err := b.order(order.BackUp, request)
		assert.NilError(t, err)
		answer := b.ended(name)
		assert.Equal(t, answer.State, order.BackupCompleted, answer.Message)
		return filepath.Join(b.folder, "vm", name, "hot.qcow2"), answer
	}
	fill := func(seek int) {
		t.Helper()
		b.wantExec("", "", 0, "sh", "-c", fmt.Sprintf("dd if=/dev/urandom of=/dev/%s bs=64k seek=%d count=32 conv=fsync 2>/dev/null", name, seek))
	}
	fill(0)
	full, _ := backUp("full", "")
	qemuImg(t, "compare", "-U", "-f", "qcow2", "-F", "raw", full, disk)
	fill(16)
	increment, answer := backUp("increment", "full")
	assert.Assert(t, answer.Incremental, "%+v", answer)
	qemuImg(t, "rebase", "-u", "-f", "qcow2", "-F", "qcow2", "-b", full, increment)
	qemuImg(t, "compare", "-U", "-f", "qcow2", "-F", "raw", increment, disk)
	assert.Equal(t, b.plug("disk-detach", `{"name": "hot"}`), plugged{Name: "hot", State: "none"})
}

// TestBackup: a full backup and its increments are the disks, and an increment has at most 1.1 times
// the bytes that the guest has written, but for its tables. The checkpoint outlives the shim, and not
// the VM.
func TestBackup(t *testing.T) {
	t.Parallel()
	b := backUpPods(t, "chain", 32*mebibyte)
	b.dirty(0, 4*mebibyte)
	full, answer := b.backUp("full", "")
	assert.Assert(t, !answer.Incremental && answer.Warning == "", "%+v", answer)
	assert.Equal(t, answer.Quiesce, order.QuiesceSucceeded)
	assert.DeepEqual(t, answer.Disks, []order.BackedUp{{Disk: "files", Target: "vdb"}, {Disk: "raw", Target: "sda"}})
	b.equal(full)

	const written = 6 * mebibyte
	b.dirty(2*mebibyte, written)
	first, answer := b.backUp("first", "full")
	assert.Assert(t, answer.Incremental && answer.Warning == "", "%+v", answer)
	for _, path := range first {
		if n := moved(t, path); n > written*11/10 {
			t.Errorf("%s has %d bytes, for %d that were written", path, n, written)
		}
	}
	b.equal(full, first)
	b.dirty(20*mebibyte, mebibyte)
	second, answer := b.backUp("second", "first")
	assert.Assert(t, answer.Incremental, "%+v", answer)
	b.equal(full, first, second)

	// Nothing of a checkpoint is left for another VM on the same disks.
	b.stop(60)
	b.removeIt()
	b.again(t, "next")
	fallback, answer := b.backUp("fallback", "second")
	assert.Assert(t, !answer.Incremental && strings.Contains(answer.Warning, "the backup is full"), "%+v", answer)
	b.equal(fallback)
}
