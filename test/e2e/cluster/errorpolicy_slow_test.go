//go:build cluster && slow

package cluster

import (
	"context"
	"fmt"
	"path/filepath"
	"strings"
	"testing"

	"gotest.tools/v3/assert"

	"github.com/nodevirt/nodevirt/shim/podstatus/condition"
	"github.com/nodevirt/nodevirt/test/loopfs"
	"github.com/nodevirt/nodevirt/test/wait"
)

// fullVolume is a folder of the first node with a sparse disk that is larger than the file system. The function makes
// room.
func fullVolume(t *testing.T, disk int64) (folder string, room func()) {
	t.Helper()
	folder = t.TempDir()
	n := suite.Nodes()[0]
	mount := func(option string) {
		t.Helper()
		_, err := n.Output(t.Context(), "mount", "-t", "tmpfs", "-o", option, "none", folder)
		assert.NilError(t, err)
	}
	mount("size=4m")
	undo(t, func(ctx context.Context) error {
		_, err := n.Output(ctx, "umount", folder)
		return err
	})
	_, err := n.Output(t.Context(), "truncate", fmt.Sprintf("--size=%d", disk), filepath.Join(folder, "disk.img"))
	assert.NilError(t, err)
	return folder, func() {
		t.Helper()
		mount("remount,size=64m")
	}
}

// TestErrorPolicies: a guest gets the errors of its disks, does not notice them, or stops, as the disks' policies say. A
// VM that stopped says so, and goes on when the cause is gone.
func TestErrorPolicies(t *testing.T) {
	t.Parallel()
	const name, size, bad = "faulty", 16 << 20, 4 << 20
	disks := []object{{"name": "boot", "disk": object{"bus": "virtio"}}}
	volumes := []object{{"name": "boot", "containerDisk": object{"image": suite.agent}}}
	add := func(policy, disk string) {
		disks = append(disks, object{"name": disk, "disk": object{"bus": "virtio"}, "cache": "none", "errorPolicy": policy})
		volumes = append(volumes, object{"name": disk, "persistentVolumeClaim": object{"claimName": name + "-" + disk}})
	}
	for _, policy := range []string{"report", "ignore", "enospace", "stop"} {
		localPVC(t, name+"-"+policy, "Block", loopfs.FaultyDevice(t, size, bad))
		add(policy, policy)
	}
	folder, room := fullVolume(t, 16<<20)
	localPVC(t, name+"-full", "Filesystem", folder)
	add("enospace", "full")
	made(t, machine(strangersVMI(name, func(spec, domain, devices object) {
		domain["memory"] = object{"guest": "128Mi"}
		devices["disks"], spec["volumes"] = disks, volumes
		spec["terminationGracePeriodSeconds"] = 1 // for a guest that is stopped
	})))
	tries := func(line string) string {
		t.Helper()
		return inGuest(t, name, "if "+line+" >/dev/null 2>&1; then echo done; else echo failed; fi")
	}

	// The fault is one sector: the rest of a disk is as good as any.
	for device, want := range map[string]string{"vdb": "failed", "vdc": "done", "vdd": "failed"} {
		for at, want := range map[int]string{bad: want, 2 * bad: "done"} {
			for _, line := range []string{
				fmt.Sprintf("dd if=/dev/%s of=/dev/null bs=4k skip=%d count=1 iflag=direct", device, at>>12),
				fmt.Sprintf("dd if=/dev/zero of=/dev/%s bs=4k seek=%d count=1 conv=notrunc,fsync", device, at>>12),
			} {
				if got := tries(line); got != want {
					t.Errorf("%s: %s, want %s", line, got, want)
				}
			}
		}
	}
	paused := func(want string) {
		t.Helper()
		wait.Success(t, "a guest that is "+want, func(ctx context.Context) error {
			of, err := suite.Kubectl(ctx, "get", "vmi", name, "-o", `jsonpath={.status.phase} {.status.conditions[?(@.type=="Paused")].status}`+
				` {.status.conditions[?(@.type=="Paused")].reason}`)
			if err == nil && strings.TrimSpace(of) != want {
				err = fmt.Errorf("it is %q", of)
			}
			return err
		})
	}

	const full = "(dd if=/dev/urandom of=/dev/vdf bs=1M count=12 conv=notrunc,fsync; echo $? >/tmp/full) >/dev/null 2>&1 &"
	inGuest(t, name, full)
	paused("Running True " + condition.ReasonPausedIOError)
	assert.NilError(t, suite.WaitFor(t.Context(), "vm/"+name, "jsonpath={.status.printableStatus}=Paused"))
	room()
	paused("Running")
	wait.Until(t, "the end of the guest's write", func() bool { return inGuest(t, name, "cat /tmp/full 2>/dev/null || true") == "0" })

	inGuest(t, name, fmt.Sprintf("(dd if=/dev/vde of=/dev/null bs=4k skip=%d count=1 iflag=direct) >/dev/null 2>&1 &", bad>>12))
	paused("Running True " + condition.ReasonPausedIOError)
	kubectl(t, "delete", "vm", name) // before the PVCs
}

// TestALUNNeedsSCSI: the instance says why a PVC that takes no SCSI commands can't be a LUN.
func TestALUNNeedsSCSI(t *testing.T) {
	t.Parallel()
	const name = "no-lun"
	localPVC(t, name, "Block", loopfs.Device(t, 4<<20))
	made(t, strangersVMI(name, func(spec, _, devices object) {
		devices["disks"] = append(devices["disks"].([]object), object{"name": "tape", "lun": object{"bus": "scsi"}})
		spec["volumes"] = append(spec["volumes"].([]object), object{"name": "tape", "persistentVolumeClaim": object{"claimName": name}})
	}))
	wait.Success(t, "the reason", func(ctx context.Context) error {
		text, err := suite.Kubectl(ctx, "describe", "vmi", name)
		if err == nil && !strings.Contains(text, "a lun needs a SCSI device") {
			err = fmt.Errorf("no word of it in\n%s", text)
		}
		return err
	})
	kubectl(t, "delete", "vmi", name)
}
