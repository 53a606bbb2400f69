//go:build cluster && slow

package cluster

import (
	"context"
	"fmt"
	"strings"
	"testing"

	"gotest.tools/v3/assert"

	"github.com/nodevirt/nodevirt/test/guest"
	"github.com/nodevirt/nodevirt/test/loopfs"
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
