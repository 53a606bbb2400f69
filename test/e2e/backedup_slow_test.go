//go:build slow

package e2e

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"

	"gotest.tools/v3/assert"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/nodevirt/nodevirt/shim/agent"
	"github.com/nodevirt/nodevirt/shim/vm/hotplug/order"
	"github.com/nodevirt/nodevirt/test/loopfs"
	"github.com/nodevirt/nodevirt/test/wait"
)

// backedUp is a VM with a disk in a folder and one on a device, and a pod that mounts a folder for
// their backups.
type backedUp struct {
	*container
	volumes       *container
	volume        string // the folder's name in the pod
	folder        string
	files, device string // the disks on the node
}

const backedUpVMI = `{
	"domain": {"devices": {"disks": [
		{"name": "root", "disk": {"bus": "virtio"}}, {"name": "files", "disk": {"bus": "virtio"}}, {"name": "raw", "disk": {"bus": "scsi"}}]}},
	"volumes": [{"name": "root", "containerDisk": {"image": "r"}},
		{"name": "files", "persistentVolumeClaim": {"claimName": "a"}}, {"name": "raw", "persistentVolumeClaim": {"claimName": "b"}}]}`

// backUpPods starts a VM on a file of a size full of random bytes, and on a device.
func backUpPods(t *testing.T, suffix string, size int64) *backedUp {
	t.Helper()
	dir := filepath.Join(suite.Dir(), "backup-"+suffix)
	t.Cleanup(func() { assert.NilError(t, os.RemoveAll(dir)) })
	disk, backups := filepath.Join(dir, "disk"), filepath.Join(dir, "backups")
	for _, path := range []string{disk, backups} {
		assert.NilError(t, os.MkdirAll(path, 0o755))
	}
	b := &backedUp{volume: "backups", folder: backups, files: filepath.Join(disk, "disk.img"), device: loopfs.Device(t, 32*mebibyte)}
	content := make([]byte, size)
	_, err := rand.Read(content)
	assert.NilError(t, err)
	assert.NilError(t, os.WriteFile(b.files, content, 0o600))
	b.again(t, "vm")
	return b
}

// again starts a VM, and the pod with the folder.
func (b *backedUp) again(t *testing.T, suffix string) {
	t.Helper()
	b.container = vmPod(t, named(suffix), annotated(map[string]string{"nodevirt.io/vmi": backedUpVMI})).vm(suite.agent, func(c *runtimeapi.ContainerConfig) {
		c.Linux.Resources.MemoryLimitInBytes = 384 * mebibyte
		c.Mounts = append(c.Mounts, &runtimeapi.Mount{ContainerPath: "/claims/files", HostPath: filepath.Dir(b.files)})
		c.Devices = append(c.Devices, &runtimeapi.Device{ContainerPath: "/dev/raw", HostPath: b.device, Permissions: "mrw"})
	}).start().up()
	b.agentIs(agent.Present)
	attachment := runPod(t, "", named("volumes-"+suffix), annotated(map[string]string{"nodevirt.io/attachment": b.pod.config.Metadata.Uid}))
	config := attachment.newContainer("volumes", suite.busybox)
	config.Command = []string{"sleep", "1000000"}
	config.Mounts = append(config.Mounts, &runtimeapi.Mount{ContainerPath: "/volumes/backups", HostPath: b.folder})
	b.volumes = attachment.create(config).start()
}

// order gives an order about a backup.
func (b *backedUp) order(control string, argument any) (answer order.Backup, err error) {
	text, err := json.Marshal(argument)
	if err != nil {
		return answer, err
	}
	r, err := b.tryExec(30, "nodevirt.io/"+control, string(text))
	if err == nil && r.ExitCode != 0 {
		err = fmt.Errorf("%s: code %d, %q", control, r.ExitCode, r.Stderr)
	}
	if err != nil {
		return answer, err
	}
	return answer, json.Unmarshal(r.Stdout, &answer)
}

// paths returns the files of a backup.
func (b *backedUp) paths(name string) (all [2]string) {
	for i, disk := range []string{"files", "raw"} {
		all[i] = filepath.Join(b.folder, "vm", name, disk+".qcow2")
	}
	return all
}

func (b *backedUp) request(name, since string) order.BackupFiles {
	return order.BackupFiles{
		Name: name, Volume: b.volume, Container: b.volumes.id, Folder: "vm/" + name, Checkpoint: name, Since: since, Quiesce: true,
		Disks: []order.BackupFile{{Disk: "files", File: "files.qcow2"}, {Disk: "raw", File: "raw.qcow2"}},
	}
}

// ended waits for the end of a backup.
func (b *backedUp) ended(name string) (answer order.Backup) {
	b.t.Helper()
	wait.Success(b.t, "the end of backup "+name, func(context.Context) (err error) {
		if answer, err = b.order(order.BackupStatus, order.Name{Name: name}); err == nil && answer.State == order.BackupWriting {
			err = fmt.Errorf("%+v", answer)
		}
		return err
	})
	return answer
}

// backUp makes a backup, and returns the paths of its files.
func (b *backedUp) backUp(name, since string) ([2]string, order.Backup) {
	b.t.Helper()
	_, err := b.order(order.BackUp, b.request(name, since))
	assert.NilError(b.t, err)
	answer := b.ended(name)
	assert.Equal(b.t, answer.State, order.BackupCompleted, answer.Message)
	return b.paths(name), answer
}

// dirty has the guest write random bytes to its two disks.
func (b *backedUp) dirty(offset, size int64) {
	b.t.Helper()
	for _, name := range []string{"vdb", "sda"} {
		b.wantExec("", "", 0, "sh", "-c", fmt.Sprintf("dd if=/dev/urandom of=/dev/%s bs=64k seek=%d count=%d conv=notrunc,fsync 2>/dev/null", name, offset>>16, size>>16))
	}
}

// equal restores chains of backups, and compares them with the disks.
func (b *backedUp) equal(chain ...[2]string) {
	b.t.Helper()
	for i, disk := range []string{b.files, b.device} {
		for n := range chain {
			if n > 0 {
				qemuImg(b.t, "rebase", "-u", "-f", "qcow2", "-F", "qcow2", "-b", chain[n-1][i], chain[n][i])
			}
			qemuImg(b.t, "check", "-q", chain[n][i])
		}
		qemuImg(b.t, "compare", "-U", "-f", "qcow2", "-F", "raw", chain[len(chain)-1][i], disk)
	}
}

func qemuImg(t *testing.T, args ...string) string {
	t.Helper()
	out, err := exec.CommandContext(t.Context(), "qemu-img", args...).CombinedOutput()
	if err != nil {
		t.Fatalf("qemu-img %q: %v: %s", args, err, out)
	}
	return string(out)
}

// moved returns the bytes on disk of a file.
func moved(t *testing.T, path string) int64 {
	t.Helper()
	info, err := os.Stat(path)
	assert.NilError(t, err)
	return info.Sys().(*syscall.Stat_t).Blocks * 512
}
