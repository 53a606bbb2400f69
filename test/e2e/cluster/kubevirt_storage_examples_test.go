//go:build cluster && slow && examples

package cluster

import (
	"path/filepath"
	"testing"

	"gotest.tools/v3/assert"

	"github.com/nodevirt/nodevirt/shim/vmspec"
)

// TestKubeVirtsStorageExamples runs those of KubeVirt's examples, unchanged, that need PVCs, the storage class "local"
// or disks on their node, in a cluster that has these.
func TestKubeVirtsStorageExamples(t *testing.T) {
	if *kubevirtExamples == "" {
		t.Fatal("missing flag: -kubevirt-examples FOLDER")
	}
	assert.NilError(t, pushKubeVirtsDisks(t.Context()))
	withHostDisks(t)
	for _, pvc := range []string{"disk-alpine", "disk-custom"} {
		provisioned(t, pvc, "Filesystem", "128Mi", "")
	}
	kubectl(t, "annotate", "pvc", "disk-alpine",
		vmspec.AnnotationDiskOrigin+"=registry:5000/kubevirt/alpine-container-disk-demo:devel")
	for _, name := range []string{"vmi-pvc", "vm-alpine-multipvc", "vm-alpine-datavolume", "vmi-host-disk"} {
		t.Run(name, func(t *testing.T) {
			m, err := readManifest(filepath.Join(*kubevirtExamples, name+".yaml"))
			assert.NilError(t, err)
			m.apply(t)
			assert.Equal(t, m.refusal, "")
			t.Cleanup(func() { m.delete(t) })
			m.run(t)
			assert.Equal(t, m.runs, "")
		})
	}
}
