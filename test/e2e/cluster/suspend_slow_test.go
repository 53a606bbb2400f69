//go:build cluster && slow

package cluster

import (
	"fmt"
	"strconv"
	"strings"
	"testing"

	"gotest.tools/v3/assert"

	"github.com/nodevirt/nodevirt/test/loopfs"
	"github.com/nodevirt/nodevirt/test/wait"
)

// counting is a VM with an agent, which counts in memory and on its PVC.
func counting(name, pvc string) object {
	return object{
		"apiVersion": "kubevirt.io/v1", "kind": "VirtualMachine", "metadata": object{"name": name},
		"spec": object{"runStrategy": "Always", "template": object{"spec": object{
			"terminationGracePeriodSeconds": 60,
			"domain": object{
				"memory": object{"guest": "128Mi"},
				"devices": object{
					"disks": []object{
						{"name": "boot", "disk": object{"bus": "virtio"}}, {"name": "data", "disk": object{"bus": "virtio"}},
					},
					"interfaces": []object{{"name": "default", "masquerade": object{}}},
				},
			},
			"networks": []object{{"name": "default", "pod": object{}}},
			"volumes": []object{
				{"name": "boot", "containerDisk": object{"image": suite.agent}},
				{"name": "data", "persistentVolumeClaim": object{"claimName": pvc}},
			},
		}}},
	}
}

// counts has the guest count, in memory and in one sector of its disk for each number.
func counts(t *testing.T, vm string) {
	t.Helper()
	inGuest(t, vm, `(i=0; while :; do i=$((i + 1)); echo $i | dd of=/dev/vdb bs=512 seek=$i conv=sync,fsync 2>/dev/null; `+
		`echo $i >/tmp/count; sleep 0.1; done) >/dev/null 2>&1 & echo $! >/tmp/counts`)
	wait.Until(t, "the guest counts", func() bool { return counted(t, vm) >= 10 })
}

// counted returns how far the guest has come; 0 while it writes that.
func counted(t *testing.T, vm string) int {
	t.Helper()
	n, _ := strconv.Atoi(inGuest(t, vm, "cat /tmp/count || true"))
	return n
}

// together ends the count, and compares the guest's disk with its memory: the disk has the number of the
// memory, and no later one but the next. It returns the number.
func together(t *testing.T, vm string) int {
	t.Helper()
	got := strings.Fields(inGuest(t, vm, `kill $(cat /tmp/counts); sleep 1; echo 3 >/proc/sys/vm/drop_caches; n=$(cat /tmp/count); echo $n; `+
		`for i in 0 1 2; do echo "$i:$(dd if=/dev/vdb bs=512 skip=$((n + i)) count=1 2>/dev/null | tr -d '\000\n')"; done`))
	t.Logf("%s: %s", vm, got)
	assert.Equal(t, len(got), 4)
	n, err := strconv.Atoi(got[0])
	assert.NilError(t, err)
	assert.Equal(t, got[1], fmt.Sprintf("0:%d", n))
	assert.Assert(t, got[2] == "1:" || got[2] == fmt.Sprintf("1:%d", n+1))
	assert.Equal(t, got[3], "2:", "the disk is of a later moment than the memory")
	return n
}

// TestSuspend: a VM that its user suspends has no pod, and its next start goes on where the guest was,
// with its memory and its disk. The start after that boots.
func TestSuspend(t *testing.T) {
	t.Parallel()
	const name, disk = "suspended", "suspended-disk"
	class := localVolume(t, "suspended-memory", "Filesystem", t.TempDir(), "512Mi")
	localPVC(t, disk, "Block", loopfs.Device(t, 96<<20))
	made(t, counting(name, disk))
	counts(t, name)
	const bootID = "cat /proc/sys/kernel/random/boot_id"
	boot := inGuest(t, name, bootID)

	kubectl(t, "annotate", "vm", name, "nodevirt.io/memory-storage-class="+class, "nodevirt.io/memory-size=512Mi", "nodevirt.io/suspend=true")
	assert.NilError(t, suite.WaitFor(t.Context(), "vm/"+name, "jsonpath={.status.printableStatus}=Suspended"))
	wait.Until(t, "it has no pod", func() bool { return kubectl(t, "get", "pods", "--selector="+byName+"="+name, "-o", "name") == "" })
	assert.Equal(t, kubectl(t, "get", "vm", name, "-o", "jsonpath={.spec.runStrategy}"), "Halted")

	v := &virtctl{t: t, seen: map[string]bool{}}
	v.works("start "+name, "VM "+name+" was scheduled to start")
	assert.NilError(t, suite.WaitFor(t.Context(), "vm/"+name, "condition=Ready"))
	assert.Equal(t, inGuest(t, name, bootID), boot, "the guest booted again")
	together(t, name)
	assert.Equal(t, kubectl(t, "get", "vm", name, "-o", `jsonpath={.metadata.annotations.nodevirt\.io/suspend}{.metadata.annotations.vm\.nodevirt\.io/resume-from}`), "")

	v.works("stop "+name, "VM "+name+" was scheduled to stop")
	assert.NilError(t, suite.WaitFor(t.Context(), "vm/"+name, "jsonpath={.status.printableStatus}=Stopped"))
	wait.Until(t, "the memory is gone", func() bool {
		return !strings.Contains(kubectl(t, "get", "pvc", "-o", "name"), "persistentvolumeclaim/suspend-")
	})
	v.works("start "+name, "VM "+name+" was scheduled to start")
	assert.NilError(t, suite.WaitFor(t.Context(), "vm/"+name, "condition=Ready"))
	assert.Assert(t, inGuest(t, name, bootID) != boot, "the guest goes on from the memory again")
	kubectl(t, "delete", "vm", name) // before the PVC
}
