//go:build cluster && slow

package cluster

import (
	"context"
	"encoding/json"
	"fmt"
	"strconv"
	"strings"
	"testing"

	"gotest.tools/v3/assert"

	"github.com/nodevirt/nodevirt/shim/vmspec"
	"github.com/nodevirt/nodevirt/test/wait"
)

// provisioned makes a PVC, whose volume the cluster makes: blank, or from a VolumeSnapshot.
func provisioned(t *testing.T, name, mode, size, snapshot string) {
	t.Helper()
	spec := object{
		"storageClassName": "local", "volumeMode": mode, "accessModes": []string{"ReadWriteOnce"},
		"resources": object{"requests": object{"storage": size}},
	}
	if snapshot != "" {
		spec["dataSource"] = object{"apiGroup": "snapshot.storage.k8s.io", "kind": "VolumeSnapshot", "name": snapshot}
	}
	made(t, object{"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": object{"name": name}, "spec": spec})
}

// storage says that the cluster provides volumes. Its programs take minutes to build.
const storage = true

// TestAProvisionedPVC: a PVC that the cluster provides becomes a guest's disk, grows and is kept in a
// snapshot, both while the guest runs. Another instance has the content of the snapshot's time.
func TestAProvisionedPVC(t *testing.T) {
	t.Parallel()
	for name, mode := range map[string]string{"provided-block": "Block", "provided-files": "Filesystem"} {
		t.Run(mode, func(t *testing.T) {
			t.Parallel()
			provisioned(t, name, mode, "128Mi", "")
			vmi := strangersVMI(name, func(spec, _, _ object) {
				spec["volumes"] = []object{
					{"name": "boot", "persistentVolumeClaim": object{"claimName": name}},
					{"name": "image", "containerDisk": object{"image": suite.tiny}},
				}
			})
			vmi["metadata"].(object)["annotations"] = object{vmspec.AnnotationDiskOrigin: "boot=image"}
			made(t, vmi)
			ip := addressOf(t, name)
			write(t, ip, "kept")

			kubectl(t, "patch", "pvc", name, "--type=merge", "--patch", `{"spec":{"resources":{"requests":{"storage":"192Mi"}}}}`)
			assert.NilError(t, suite.WaitFor(t.Context(), "pvc/"+name, "jsonpath={.status.capacity.storage}=192Mi"))
			grown(t, ip)
			snapshot := made(t, object{
				"apiVersion": "snapshot.storage.k8s.io/v1", "kind": "VolumeSnapshot", "metadata": object{"name": name},
				"spec": object{"volumeSnapshotClassName": "local", "source": object{"persistentVolumeClaimName": name}},
			})
			assert.NilError(t, suite.WaitFor(t.Context(), "volumesnapshot/"+snapshot, "jsonpath={.status.readyToUse}=true"))
			write(t, ip, "changed")

			restored := name + "-restored"
			provisioned(t, restored, mode, "192Mi", snapshot)
			made(t, onPVC(restored, restored))
			asked(t, addressOf(t, restored), "/cgi-bin/disk", "kept")
			asked(t, ip, "/cgi-bin/disk", "changed")
		})
	}
}

// grown waits until a guest's first disk has more than 128 MiB.
func grown(t *testing.T, ip string) {
	t.Helper()
	wait.Success(t, "a larger disk", func(ctx context.Context) error {
		page, err := ask(ctx, ip, "/cgi-bin/info")
		if err != nil {
			return err
		}
		var info struct {
			Disks []struct {
				Name string
				Size int64
			}
		}
		if err := json.Unmarshal([]byte(page), &info); err != nil {
			return err
		}
		if len(info.Disks) == 0 || info.Disks[0].Name != "vda" || info.Disks[0].Size <= 128<<20 {
			return fmt.Errorf("the guest's disks: %v", info.Disks)
		}
		return nil
	})
}

// TestASnapshotOfAVM: a running VM's snapshot has its PVC's content of that time, and a restore
// returns the stopped VM to it.
func TestASnapshotOfAVM(t *testing.T) {
	t.Parallel()
	const name = "returning"
	provisioned(t, name, "Block", "128Mi", "")
	vmi := strangersVMI(name, func(spec, _, _ object) {
		spec["volumes"] = []object{
			{"name": "boot", "persistentVolumeClaim": object{"claimName": name}},
			{"name": "image", "containerDisk": object{"image": suite.tiny}},
		}
	})
	made(t, object{
		"apiVersion": "kubevirt.io/v1", "kind": "VirtualMachine", "metadata": object{"name": name},
		"spec": object{"runStrategy": "Always", "template": object{
			"metadata": object{"annotations": object{vmspec.AnnotationDiskOrigin: "boot=image"}}, "spec": vmi["spec"],
		}},
	})
	ip := addressOf(t, name)
	write(t, ip, "kept")
	snapshot := snapshotted(t, name, nil)
	write(t, ip, "changed")

	restored(t, name, snapshot)
	asked(t, addressOf(t, name), "/cgi-bin/disk", "kept")
}

func sourceOf(vm string) object {
	return object{"apiGroup": "kubevirt.io", "kind": "VirtualMachine", "name": vm}
}

// snapshotted takes a snapshot with annotations of a VM, waits until it is ready, and returns its name.
func snapshotted(t *testing.T, vm string, annotations object) string {
	t.Helper()
	snapshot := made(t, object{
		"apiVersion": "snapshot.kubevirt.io/v1beta1", "kind": "VirtualMachineSnapshot", "metadata": object{"name": vm, "annotations": annotations},
		"spec": object{"source": sourceOf(vm)},
	})
	assert.NilError(t, suite.WaitFor(t.Context(), "vmsnapshot/"+snapshot, "jsonpath={.status.readyToUse}=true"))
	return snapshot
}

// restored returns a VM to a snapshot, and starts it.
func restored(t *testing.T, vm, snapshot string) {
	t.Helper()
	restore := made(t, object{
		"apiVersion": "snapshot.kubevirt.io/v1beta1", "kind": "VirtualMachineRestore", "metadata": object{"name": vm},
		"spec": object{"target": sourceOf(vm), "virtualMachineSnapshotName": snapshot, "targetReadinessPolicy": "StopTarget"},
	})
	assert.NilError(t, suite.WaitFor(t.Context(), "vmrestore/"+restore, "jsonpath={.status.complete}=true"))
	kubectl(t, "patch", "vm", vm, "--type=merge", "--patch", `{"spec":{"runStrategy":"Always"}}`)
	assert.NilError(t, suite.WaitFor(t.Context(), "vm/"+vm, "condition=Ready"))
}

// TestASnapshotWithMemory: a guest goes on after a restore where it was when its snapshot was taken,
// and its processes with it.
func TestASnapshotWithMemory(t *testing.T) {
	t.Parallel()
	const name = "remembering"
	made(t, object{
		"apiVersion": "kubevirt.io/v1", "kind": "VirtualMachine", "metadata": object{"name": name},
		"spec": object{"runStrategy": "Always", "template": object{"spec": object{
			"terminationGracePeriodSeconds": 60,
			"domain": object{
				"memory": object{"guest": "128Mi"},
				"devices": object{
					"disks":      []object{{"name": "boot", "disk": object{"bus": "virtio"}}},
					"interfaces": []object{{"name": "default", "masquerade": object{}}},
				},
			},
			"networks": []object{{"name": "default", "pod": object{}}},
			"volumes":  []object{{"name": "boot", "containerDisk": object{"image": suite.tiny}}},
		}}},
	})
	addressOf(t, name)
	before := answerOf(t, name, "") // has the boot's id
	snapshot := snapshotted(t, name, object{"nodevirt.io/memory": "true", "nodevirt.io/memory-storage-class": "local", "nodevirt.io/memory-size": "512Mi"})
	restored(t, name, snapshot)
	assert.Equal(t, answerOf(t, name, ""), before, "the guest booted again")
	kubectl(t, "delete", "vm", name) // before the PVC
}

// TestASnapshotWithMemoryAndADisk: the disk and the memory of a restored guest are of one moment, though
// the guest wrote to both before and after its snapshot.
func TestASnapshotWithMemoryAndADisk(t *testing.T) {
	t.Parallel()
	const name = "moment"
	provisioned(t, name, "Block", "128Mi", "")
	made(t, counting(name, name))
	counts(t, name)
	const bootID = "cat /proc/sys/kernel/random/boot_id"
	boot, before := inGuest(t, name, bootID), counted(t, name)
	snapshot := snapshotted(t, name, object{"nodevirt.io/memory": "true", "nodevirt.io/memory-storage-class": "local", "nodevirt.io/memory-size": "512Mi"})
	taken := counted(t, name)
	wait.Until(t, "the guest goes on", func() bool { return counted(t, name) > taken+20 })
	restored(t, name, snapshot)
	assert.Equal(t, inGuest(t, name, bootID), boot, "the guest booted again")
	if n := together(t, name); n < before {
		t.Errorf("the guest counted to %d before its snapshot, and goes on from %d or less", before, n)
	}
	kubectl(t, "delete", "vm", name) // before the PVC
}

// paired has a guest write numbers to a file on each of its two disks, first to the one, then to the other. It flushes
// neither: a disk that is copied without a freeze has a number of some seconds ago, or no file.
const paired = `for d in vdb vdc; do mke2fs /dev/$d >/dev/null && mkdir -p /mnt/$d && mount -t ext4 /dev/$d /mnt/$d || exit 1; done
for d in vdb vdc; do echo 1000000 >/mnt/$d/n; done; sync
(i=1000000; while :; do i=$((i + 1)); echo $i 1<>/mnt/vdb/n; echo $i 1<>/mnt/vdc/n; usleep 2000; done) >/dev/null 2>&1 </dev/null &
sleep 1; cat /mnt/vdc/n`

// TestASnapshotOfTwoDisks: the disks in a snapshot are of one moment, though their guest writes to both meanwhile: its
// agent freezes it.
func TestASnapshotOfTwoDisks(t *testing.T) {
	t.Parallel()
	const name, second = "paired", "paired-second"
	provisioned(t, name, "Block", "32Mi", "")
	provisioned(t, second, "Block", "32Mi", "")
	o := counting(name, name)
	spec := o["spec"].(object)["template"].(object)["spec"].(object)
	devices := spec["domain"].(object)["devices"].(object)
	devices["disks"] = append(devices["disks"].([]object), object{"name": "second", "disk": object{"bus": "virtio"}})
	spec["volumes"] = append(spec["volumes"].([]object), object{"name": "second", "persistentVolumeClaim": object{"claimName": second}})
	made(t, o)
	before, err := strconv.Atoi(inGuest(t, name, paired))
	assert.NilError(t, err)
	snapshot := snapshotted(t, name, nil)
	indications := kubectl(t, "get", "vmsnapshot", snapshot, "-o", "jsonpath={.status.indications}")
	if !strings.Contains(indications, `"GuestAgent"`) {
		t.Errorf("the snapshot's indications are %s", indications)
	}
	restored(t, name, snapshot)
	got := strings.Fields(inGuest(t, name, "for d in vdb vdc; do mkdir -p /mnt/$d && mount -t ext4 /dev/$d /mnt/$d && cat /mnt/$d/n; done"))
	t.Logf("the restored disks have %v", got)
	if len(got) != 2 {
		t.Fatalf("the restored disks have %v", got)
	}
	first, err := strconv.Atoi(got[0])
	assert.NilError(t, err)
	other, err := strconv.Atoi(got[1])
	assert.NilError(t, err)
	if other < before || first != other && first != other+1 {
		t.Errorf("the first disk has %d, the second %d: they are of two moments, or of one before %d", first, other, before)
	}
	kubectl(t, "delete", "vm", name) // before the PVCs
}

// TestACloneOfAVM: a clone of a running VM starts with a disk that has the content of that time.
func TestACloneOfAVM(t *testing.T) {
	t.Parallel()
	const name, copied = "cloned", "cloned-copy"
	provisioned(t, name, "Block", "128Mi", "")
	vmi := strangersVMI(name, func(spec, _, _ object) {
		spec["volumes"] = []object{
			{"name": "boot", "persistentVolumeClaim": object{"claimName": name}},
			{"name": "image", "containerDisk": object{"image": suite.tiny}},
		}
	})
	made(t, object{
		"apiVersion": "kubevirt.io/v1", "kind": "VirtualMachine", "metadata": object{"name": name},
		"spec": object{"runStrategy": "Always", "template": object{
			"metadata": object{"annotations": object{vmspec.AnnotationDiskOrigin: "boot=image"}}, "spec": vmi["spec"],
		}},
	})
	ip := addressOf(t, name)
	write(t, ip, "kept")
	clone := made(t, object{
		"apiVersion": "clone.kubevirt.io/v1beta1", "kind": "VirtualMachineClone", "metadata": object{"name": name},
		"spec": object{
			"source":           object{"apiGroup": "kubevirt.io", "kind": "VirtualMachine", "name": name},
			"target":           object{"apiGroup": "kubevirt.io", "kind": "VirtualMachine", "name": copied},
			"volumeNamePolicy": "PrefixTargetName",
		},
	})
	assert.NilError(t, suite.WaitFor(t.Context(), "vmclone/"+clone, "jsonpath={.status.phase}=Succeeded"))
	undo(t, func(ctx context.Context) error {
		_, err := suite.Kubectl(ctx, "delete", "vm", copied, "--ignore-not-found")
		return err
	})
	uid := kubectl(t, "get", "vmclone", clone, "-o", "jsonpath={.metadata.uid}")
	write(t, ip, "changed")
	kubectl(t, "patch", "vm", copied, "--type=merge", "--patch", `{"spec":{"runStrategy":"Always"}}`)
	assert.NilError(t, suite.WaitFor(t.Context(), "vm/"+copied, "condition=Ready"))
	asked(t, addressOf(t, copied), "/cgi-bin/disk", "kept")
	asked(t, ip, "/cgi-bin/disk", "changed")
	assert.NilError(t, suite.WaitFor(t.Context(), "pvc/"+copied+"-boot", "jsonpath={.status.phase}=Bound"))
	kubectl(t, "wait", "vmrestore/tmp-restore-"+uid, "vmsnapshot/tmp-snapshot-"+uid, "--for=delete", "--timeout=60s")
}
