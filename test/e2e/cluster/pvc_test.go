//go:build cluster

package cluster

import (
	"bytes"
	"context"
	"crypto/rand"
	"errors"
	"os"
	"path/filepath"
	"testing"

	"gotest.tools/v3/assert"

	"github.com/nodevirt/nodevirt/test/guest"
	"github.com/nodevirt/nodevirt/test/loopfs"
	"github.com/nodevirt/nodevirt/test/wait"
)

// localPVC makes a PVC whose volume is a folder or a device of the first node.
func localPVC(t *testing.T, name, mode, path string) {
	t.Helper()
	sizedPVC(t, name, mode, path, "96Mi")
}

// sizedPVC is localPVC with a size.
func sizedPVC(t *testing.T, name, mode, path, size string) {
	t.Helper()
	pvcOn(t, "node-1", name, mode, path, size)
}

// pvcOn makes a PVC whose volume is a folder or a device of a node.
func pvcOn(t *testing.T, node, name, mode, path, size string) {
	t.Helper()
	class := volumeOn(t, node, name, mode, path, size)
	made(t, object{"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": object{"name": name}, "spec": object{
		"storageClassName": class, "volumeMode": mode, "accessModes": []string{"ReadWriteOnce"},
		"resources": object{"requests": object{"storage": size}},
	}})
}

// localVolume makes a volume that is a folder or a device of the first node, and returns its storage
// class, which has no other.
func localVolume(t *testing.T, name, mode, path, size string) (class string) {
	t.Helper()
	return volumeOn(t, "node-1", name, mode, path, size)
}

// volumeOn is localVolume on another node.
func volumeOn(t *testing.T, node, name, mode, path, size string) (class string) {
	t.Helper()
	class = "local-" + name
	made(t, object{"apiVersion": "storage.k8s.io/v1", "kind": "StorageClass", "metadata": object{"name": class},
		"provisioner": "kubernetes.io/no-provisioner", "volumeBindingMode": "WaitForFirstConsumer"})
	persistentVolume(t, node, name, class, mode, path, size)
	return class
}

// persistentVolume makes a volume of a class that is a folder or a device of a node.
func persistentVolume(t *testing.T, node, name, class, mode, path, size string) {
	t.Helper()
	made(t, object{"apiVersion": "v1", "kind": "PersistentVolume", "metadata": object{"name": "local-" + name}, "spec": object{
		"storageClassName": class, "volumeMode": mode, "accessModes": []string{"ReadWriteOnce"},
		"capacity": object{"storage": size}, "local": object{"path": path},
		"nodeAffinity": object{"required": object{"nodeSelectorTerms": []object{{"matchExpressions": []object{
			{"key": "kubernetes.io/hostname", "operator": "In", "values": []string{node}},
		}}}}},
	}})
}

// onPVC is an instance that boots from a PVC.
func onPVC(name, pvc string) object {
	return strangersVMI(name, func(spec, _, _ object) {
		spec["terminationGracePeriodSeconds"] = 60
		spec["volumes"] = []object{{"name": "boot", "persistentVolumeClaim": object{"claimName": pvc}}}
	})
}

// addressOf waits for an instance to answer, and returns its address.
func addressOf(t *testing.T, name string) string {
	t.Helper()
	assert.NilError(t, suite.WaitFor(t.Context(), "vmi/"+name, "jsonpath={.status.phase}=Running"))
	answerOf(t, name, "")
	return kubectl(t, "get", "vmi", name, "-o", "jsonpath={.status.interfaces[0].ipAddress}")
}

// write has a guest keep a text on its disk.
func write(t *testing.T, ip, text string) {
	t.Helper()
	wait.Success(t, "the guest's file", func(ctx context.Context) error {
		_, err := suite.Kubectl(ctx, "exec", shell, "--", "wget", "-q", "-O", "-", "--post-data="+text, "http://"+ip+"/cgi-bin/disk")
		return err
	})
}

// TestAnInstanceBootsFromAPVC: a guest has no other disk than a PVC, which a second instance can't use
// before the first has ended. Then it has what the first one wrote.
func TestAnInstanceBootsFromAPVC(t *testing.T) {
	t.Parallel()
	disk, err := guest.Tiny(t.Context(), suite.Control().GuestOptions())
	assert.NilError(t, err)
	for name, volume := range map[string]func(*testing.T) (mode, path, disk string){
		"block": func(t *testing.T) (mode, path, disk string) {
			device := loopfs.Device(t, 96<<20)
			return "Block", device, device
		},
		"files": func(t *testing.T) (mode, path, disk string) {
			folder := t.TempDir()
			file := filepath.Join(folder, "disk.img")
			assert.NilError(t, os.WriteFile(file, nil, 0o600))
			assert.NilError(t, os.Truncate(file, 96<<20))
			return "Filesystem", folder, file
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			mode, path, to := volume(t)
			_, err := suite.Nodes()[0].Output(t.Context(), "qemu-img", "convert", "-n", "-O", "raw", disk, to)
			assert.NilError(t, err)
			pvc := "boot-" + name
			first := made(t, onPVC(name+"-first", pvc))
			assert.NilError(t, suite.WaitFor(t.Context(), "vmi/"+first,
				`jsonpath={.status.conditions[?(@.type=="Synchronized")].reason}=FailedPvcNotFound`))
			localPVC(t, pvc, mode, path)
			ip := addressOf(t, first)
			second := made(t, onPVC(name+"-second", pvc))
			assert.NilError(t, suite.WaitFor(t.Context(), "vmi/"+second,
				`jsonpath={.status.conditions[?(@.type=="Synchronized")].reason}=PVCInUse`))
			write(t, ip, "kept")
			kubectl(t, "delete", "vmi", first)
			ip = addressOf(t, second)
			asked(t, ip, "/cgi-bin/disk", "kept")
			kubectl(t, "delete", "vmi", second) // before the PVC
		})
	}
}

// TestABlankPVC: a PVC of an empty file system becomes a disk.
func TestABlankPVC(t *testing.T) {
	t.Parallel()
	folder := t.TempDir()
	localPVC(t, "blank", "Filesystem", folder)
	name := made(t, strangersVMI("on-blank", volume(object{"persistentVolumeClaim": object{"claimName": "blank"}})))
	addressOf(t, name)
	info, err := os.Stat(filepath.Join(folder, "disk.img"))
	assert.NilError(t, err)
	if info.Size() != 96<<20 {
		t.Errorf("the disk has %d bytes", info.Size())
	}
	kubectl(t, "delete", "vmi", name)
}

// equal counts the bytes that are the same.
func equal(a, b []byte) (n int) {
	for i := range min(len(a), len(b)) {
		if a[i] == b[i] {
			n++
		}
	}
	return n
}

// TestADiskMovesToAnotherPVC: a VM whose disk is on a node moves to the other one with its disk, without a new boot, and
// keeps it after a restart.
func TestADiskMovesToAnotherPVC(t *testing.T) {
	t.Parallel()
	const name = "moving-disk"
	disk, err := guest.Tiny(t.Context(), suite.Control().GuestOptions())
	assert.NilError(t, err)
	here, there, moreHere, moreThere := t.TempDir(), t.TempDir(), t.TempDir(), t.TempDir()
	_, err = suite.Nodes()[0].Output(t.Context(), "qemu-img", "convert", "-O", "raw", disk, filepath.Join(here, "disk.img"))
	assert.NilError(t, err)
	assert.NilError(t, os.Truncate(filepath.Join(here, "disk.img"), 96<<20))
	pvcOn(t, steady, "disk-here", "Filesystem", here, "96Mi")
	pvcOn(t, harmed, "disk-there", "Filesystem", there, "128Mi")
	content := make([]byte, 16<<20)
	_, _ = rand.Read(content) // never fails
	assert.NilError(t, os.WriteFile(filepath.Join(moreHere, "disk.img"), content, 0o644))
	pvcOn(t, steady, "more-here", "Filesystem", moreHere, "16Mi")
	pvcOn(t, harmed, "more-there", "Filesystem", moreThere, "32Mi")
	made(t, machine(onPVC(name, "disk-here")))
	boot := answerOf(t, name, "")
	kubectl(t, "patch", "vm", name, "--type=json", "--patch="+`[
		{"op": "add", "path": "/spec/template/spec/domain/devices/disks/-", "value": {"name": "more", "serial": "more", "disk": {"bus": "scsi"}}},
		{"op": "add", "path": "/spec/template/spec/volumes/-", "value": {"name": "more", "persistentVolumeClaim": {"claimName": "more-here", "hotpluggable": true}}}]`)
	const more = `.status.volumeStatus[?(@.name=="more")]`
	assert.NilError(t, suite.WaitFor(t.Context(), "vmi/"+name, "jsonpath={"+more+".phase}=Ready"))
	write(t, vmiField(t, name, ".status.interfaces[0].ipAddress"), "kept")
	kubectl(t, "patch", "vm", name, "--type=merge", "-p", `{"spec": {"updateVolumesStrategy": "Migration", "template": {"spec": {"volumes": [
		{"name": "boot", "persistentVolumeClaim": {"claimName": "disk-there"}},
		{"name": "more", "persistentVolumeClaim": {"claimName": "more-there", "hotpluggable": true}}]}}}}`)
	assert.NilError(t, suite.WaitFor(t.Context(), "vmi/"+name, "jsonpath={.spec.volumes[0].persistentVolumeClaim.claimName}=disk-there"))
	assert.NilError(t, suite.WaitFor(t.Context(), "vmi/"+name, "jsonpath={.status.nodeName}="+harmed))
	assert.Equal(t, answerOf(t, name, ""), boot)
	asked(t, vmiField(t, name, ".status.interfaces[0].ipAddress"), "/cgi-bin/disk", "kept")
	wait.Success(t, "the VM needs nothing more", func(ctx context.Context) error {
		left, err := suite.Kubectl(ctx, "get", "vm", name, "-o", `jsonpath={.status.volumeUpdateState}{.status.conditions[?(@.type=="RestartRequired")].message}`)
		if err == nil && left != "" {
			err = errors.New(left)
		}
		return err
	})
	assert.NilError(t, suite.WaitFor(t.Context(), "vmi/"+name, "jsonpath={"+more+".persistentVolumeClaimInfo.claimName}=more-there"))
	assert.Equal(t, vmiField(t, name, more+".phase"), "Ready")
	copied, err := os.ReadFile(filepath.Join(moreThere, "disk.img"))
	assert.NilError(t, err)
	if !bytes.Equal(copied, content) {
		t.Errorf("the disk that the guest has got has %d bytes after its move, of which %d are its own", len(copied), equal(copied, content))
	}
	asked(t, vmiField(t, name, ".status.interfaces[0].ipAddress"), "/cgi-bin/info", "more")
	kubectl(t, "patch", "vm", name, "--type=json", `--patch=[{"op": "remove", "path": "/spec/template/spec/domain/devices/disks/1"},
		{"op": "remove", "path": "/spec/template/spec/volumes/1"}]`)
	wait.Until(t, "the guest loses the disk", func() bool { return vmiField(t, name, more+".name") == "" })
	assert.NilError(t, os.RemoveAll(filepath.Join(here, "disk.img")))
	kubectl(t, "delete", "vmi", name) // it always runs
	answerOf(t, name, boot)
	asked(t, vmiField(t, name, ".status.interfaces[0].ipAddress"), "/cgi-bin/disk", "kept")
}
