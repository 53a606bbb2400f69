//go:build cluster && slow

package cluster

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"gotest.tools/v3/assert"

	"github.com/nodevirt/nodevirt/test/guest"
	"github.com/nodevirt/nodevirt/test/loopfs"
	"github.com/nodevirt/nodevirt/test/wait"
)

// TestExportedImage: what a guest has written to its PVC becomes a registry disk. An instance that
// boots from the image, by its digest, has it.
func TestExportedImage(t *testing.T) {
	t.Parallel()
	const pvc, name = "image-source", "pushed"
	disk, err := guest.Tiny(t.Context(), suite.Control().GuestOptions())
	assert.NilError(t, err)
	device := loopfs.Device(t, 96<<20)
	_, err = suite.Nodes()[0].Output(t.Context(), "qemu-img", "convert", "-n", "-O", "raw", disk, device)
	assert.NilError(t, err)
	localPVC(t, pvc, "Block", device)
	source := made(t, onPVC("image-source", pvc))
	write(t, addressOf(t, source), "kept")
	made(t, object{
		"apiVersion": "v1", "kind": "Secret", "metadata": object{"name": "registry"}, "type": "kubernetes.io/dockerconfigjson",
		"stringData": object{".dockerconfigjson": `{"auths":{"` + suite.RegistryAddress() + `":{"username":"robot","password":"secret"}}}`},
	})
	ref := suite.RegistryAddress() + "/disks/" + name + ":1"
	undo(t, func(ctx context.Context) error {
		if t.Failed() {
			about, _ := suite.Kubectl(ctx, "describe", "vmexport", name)
			more, _ := suite.Kubectl(ctx, "describe", "pods", "--selector=kubevirt.io=virt-exporter")
			t.Logf("%s\n%s", about, more)
		}
		return nil
	})
	made(t, object{
		"apiVersion": "export.kubevirt.io/v1", "kind": "VirtualMachineExport",
		"metadata": object{"name": name, "annotations": object{"nodevirt.io/push-image": ref, "nodevirt.io/push-secret": "registry"}},
		"spec":     object{"source": object{"apiGroup": "", "kind": "PersistentVolumeClaim", "name": pvc}},
	})
	const condition = `{.status.conditions[?(@.type=="%s")].%s}`
	// Nothing is pushed while the guest writes.
	assert.NilError(t, suite.WaitFor(t.Context(), "vmexport/"+name, "jsonpath="+fmt.Sprintf(condition, "Ready", "reason")+"=InUse"))
	kubectl(t, "delete", "vmi", source)
	assert.NilError(t, suite.WaitFor(t.Context(), "vmexport/"+name, "condition=ImagePushed"))
	assert.NilError(t, suite.WaitFor(t.Context(), "vmexport/"+name, "condition=Ready"))
	image := kubectl(t, "get", "vmexport", name, "-o", "jsonpath="+fmt.Sprintf(condition, "ImagePushed", "message"))
	assert.Assert(t, strings.HasPrefix(image, ref+"@sha256:"), image)
	booted := made(t, strangersVMI(name, func(spec, _, _ object) {
		spec["volumes"] = []object{{"name": "boot", "containerDisk": object{"image": image}}}
	}))
	asked(t, addressOf(t, booted), "/cgi-bin/disk", "kept")
	kubectl(t, "delete", "vmi", booted)
	kubectl(t, "delete", "vmexport", name) // before the PVC
}

// TestExport: virtctl downloads the disks of a VM, which are a device and a file, and a folder, and
// gets the VM's manifests.
func TestExport(t *testing.T) {
	t.Parallel()
	const size = 96 << 20
	want := make([]byte, size)
	copy(want, "begins")
	copy(want[size-4:], "ends")
	device, disk, folder := loopfs.Device(t, size), t.TempDir(), t.TempDir()
	assert.NilError(t, os.WriteFile(device, want, 0))
	assert.NilError(t, os.WriteFile(filepath.Join(disk, "disk.img"), want, 0o600)) // as a node makes it
	assert.NilError(t, os.WriteFile(filepath.Join(folder, "note"), []byte("kept"), 0o600))
	localPVC(t, "exported-block", "Block", device)
	localPVC(t, "exported-file", "Filesystem", disk)
	localPVC(t, "exported-folder", "Filesystem", folder)
	made(t, object{
		"apiVersion": "kubevirt.io/v1", "kind": "VirtualMachine", "metadata": object{"name": "exported"},
		"spec": object{"runStrategy": "Halted", "template": object{"spec": object{
			"domain": object{"memory": object{"guest": "128Mi"}, "devices": object{}},
			"volumes": []object{
				{"name": "block", "persistentVolumeClaim": object{"claimName": "exported-block"}},
				{"name": "file", "persistentVolumeClaim": object{"claimName": "exported-file"}},
			},
		}}},
	})
	undo(t, func(ctx context.Context) error {
		if t.Failed() {
			about, _ := suite.Kubectl(ctx, "describe", "vmexport")
			more, _ := suite.Kubectl(ctx, "describe", "pods", "--selector=kubevirt.io=virt-exporter")
			t.Logf("%s\n%s", about, more)
		}
		_, err := suite.Kubectl(ctx, "delete", "vmexport", "exported", "folder", "--ignore-not-found")
		return err
	})
	v := &virtctl{t: t, seen: map[string]bool{}}
	v.works("vmexport create exported --vm=exported", "")
	for _, volume := range []string{"exported-block", "exported-file"} {
		file := filepath.Join(t.TempDir(), "disk.raw")
		v.works("vmexport download exported --volume="+volume+" --output="+file+" --format=raw --port-forward", "Download finished ")
		got, err := os.ReadFile(file)
		assert.NilError(t, err)
		assert.Assert(t, bytes.Equal(got, want), "%s: %d bytes", volume, len(got))
	}
	manifests := v.works("vmexport download exported --manifest --include-secret --port-forward", "kind: VirtualMachine")
	for _, part := range []string{"kind: ConfigMap", "/volumes/exported-block/disk.img.gz", "x-kubevirt-export-token:"} {
		assert.Assert(t, strings.Contains(manifests, part), "%s: %s", part, manifests)
	}
	v.works("vmexport delete exported", "")
	assert.Equal(t, kubectl(t, "get", "vmexport", "exported", "--ignore-not-found", "-o", "name"), "")

	// A folder is an archive, and an export that a download has made goes with it.
	archive := filepath.Join(t.TempDir(), "folder.tar.gz")
	v.works("vmexport download folder --pvc=exported-folder --output="+archive+" --port-forward", "Download finished ")
	content, err := suite.Nodes()[0].Output(t.Context(), "tar", "-xzOf", archive, "./note")
	assert.NilError(t, err)
	assert.Equal(t, content, "kept")
	wait.Until(t, "the download's export is gone", func() bool { return !strings.Contains(kubectl(t, "get", "vmexport", "-o", "name"), "/folder") })
	kubectl(t, "delete", "vm", "exported") // before the PVCs
}
