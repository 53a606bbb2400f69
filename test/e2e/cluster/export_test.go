//go:build cluster

package cluster

import (
	"bytes"
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"gotest.tools/v3/assert"

	"github.com/nodevirt/nodevirt/test/loopfs"
	"github.com/nodevirt/nodevirt/test/wait"
)

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
