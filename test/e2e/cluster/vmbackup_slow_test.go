//go:build cluster && slow

package cluster

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"gotest.tools/v3/assert"

	"github.com/nodevirt/nodevirt/test/wait"
)

// TestVMBackup: the KubeVirt object selects a VM. The first backup of a tracker is full, the second one
// has what the guest has written since, and both together are the disk. After a restart of the VM the
// next backup is full, and says so. A backup that is deleted leaves no file.
func TestVMBackup(t *testing.T) {
	const name = "backed-up"
	disk, files := t.TempDir(), t.TempDir()
	sizedPVC(t, "backed-up-disk", "Filesystem", disk, "64Mi")
	sizedPVC(t, "backed-up-files", "Filesystem", files, "512Mi")
	configure := func(ctx context.Context, selectors string) error {
		_, err := suite.Kubectl(ctx, "patch", "kubevirt", "kubevirt", "--namespace=nodevirt", "--type=merge",
			`--patch={"spec": {"configuration": {"changedBlockTrackingLabelSelectors": `+selectors+`}}}`)
		return err
	}
	assert.NilError(t, configure(t.Context(), `{"virtualMachineLabelSelector": {"matchLabels": {"backup": "yes"}}}`))
	undo(t, func(ctx context.Context) error { return configure(ctx, "null") })
	vm := counting(name, "backed-up-disk")
	vm["metadata"].(object)["labels"] = object{"backup": "yes"}
	made(t, vm)
	assert.NilError(t, suite.WaitFor(t.Context(), "vm/"+name, "jsonpath={.status.changedBlockTracking.state}=Enabled"))
	made(t, object{"apiVersion": "backup.kubevirt.io/v1alpha1", "kind": "VirtualMachineBackupTracker", "metadata": object{"name": name}, "spec": object{
		"source": object{"apiGroup": "kubevirt.io", "kind": "VirtualMachine", "name": name},
	}})
	backUp := func(backup, want string) (path string) {
		t.Helper()
		made(t, object{"apiVersion": "backup.kubevirt.io/v1alpha1", "kind": "VirtualMachineBackup", "metadata": object{"name": backup}, "spec": object{
			"source":  object{"apiGroup": "backup.kubevirt.io", "kind": "VirtualMachineBackupTracker", "name": name},
			"pvcName": "backed-up-files",
		}})
		assert.NilError(t, suite.WaitFor(t.Context(), "vmbackup/"+backup, "condition=Complete"))
		assert.Equal(t, kubectl(t, "get", "vmbackup", backup, "-o",
			`jsonpath={.status.type} {.status.includedVolumes[*].volumeName} {.status.conditions[?(@.type=="Complete")].reason} {.status.conditions[?(@.type=="Quiesced")].status}`), want)
		assert.Equal(t, kubectl(t, "get", "vmbackuptracker", name, "-o", "jsonpath={.status.latestCheckpoint.name}"),
			kubectl(t, "get", "vmbackup", backup, "-o", "jsonpath={.status.checkpointName}"))
		all, err := filepath.Glob(filepath.Join(files, name, backup+"-*", "*"))
		assert.NilError(t, err)
		assert.Equal(t, len(all), 1)
		assert.Equal(t, filepath.Base(all[0]), backup+"-data.qcow2")
		return all[0]
	}
	tool := func(args ...string) {
		t.Helper()
		if out, err := exec.CommandContext(t.Context(), "qemu-img", args...).CombinedOutput(); err != nil {
			t.Fatalf("qemu-img %q: %v: %s", args, err, out)
		}
	}
	equal := func(path string) {
		t.Helper()
		tool("compare", "-U", "-f", "qcow2", "-F", "raw", path, filepath.Join(disk, "disk.img"))
	}
	const fill = "dd if=/dev/urandom of=/dev/vdb bs=64k seek=%d count=%d conv=fsync 2>/dev/null"

	inGuest(t, name, fmt.Sprintf(fill, 0, 256))
	full := backUp("backup-1", "Full data Completed True")
	equal(full)
	const blocks = 64
	inGuest(t, name, fmt.Sprintf(fill, 100, blocks))
	increment := backUp("backup-2", "Incremental data Completed True")
	info, err := os.Stat(increment)
	assert.NilError(t, err)
	if n := info.Sys().(*syscall.Stat_t).Blocks * 512; n > blocks*64<<10*11/10 {
		t.Errorf("the increment has %d bytes, for %d that were written", n, blocks*64<<10)
	}
	tool("rebase", "-u", "-f", "qcow2", "-F", "qcow2", "-b", full, increment)
	equal(increment)

	v := &virtctl{t: t, seen: map[string]bool{}}
	uid := kubectl(t, "get", "vmi", name, "-o", "jsonpath={.metadata.uid}")
	v.works("restart "+name, "scheduled to restart")
	wait.Until(t, "another instance", func() bool {
		now, err := suite.Kubectl(t.Context(), "get", "vmi", name, "-o", "jsonpath={.metadata.uid} {.status.phase}")
		return err == nil && !strings.HasPrefix(now, uid) && strings.HasSuffix(now, "Running")
	})
	inGuest(t, name, "true")
	equal(backUp("backup-3", "Full data CompletedWithWarning True"))

	kubectl(t, "delete", "vmbackup", "backup-1", "backup-2", "backup-3")
	_, err = os.Stat(full)
	assert.NilError(t, err, "a backup that has ended keeps its files")
	kubectl(t, "delete", "vm", name) // before the PVCs
}
