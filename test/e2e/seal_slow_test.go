//go:build slow

package e2e

import (
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"gotest.tools/v3/assert"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/nodevirt/nodevirt/shim/vmspec"
)

// TestSealedSecret: what a guest has sealed with its persistent TPM it unseals after a reboot, and so does its VM's next
// instance. Another VM's TPM does not.
func TestSealedSecret(t *testing.T) {
	t.Parallel()
	const vmi = `{
		"domain": {"devices": {
			"tpm": {"persistent": %t}, "disks": [{"name": "root", "disk": {"bus": "virtio"}}],
			"interfaces": [{"name": "default", "bridge": {}}]
		}},
		"networks": [{"name": "default", "pod": {}}], "volumes": [{"name": "root", "containerDisk": {"image": ""}}]
	}`
	folder := filepath.Join(suite.Dir(), "sealed") // which only root may enter
	assert.NilError(t, os.Mkdir(folder, 0o700))
	t.Cleanup(func() { assert.NilError(t, os.RemoveAll(folder)) })
	const secret = "the disk's key"
	unseals := func(c *container, sealed, when string) {
		t.Helper()
		c.installs("sealer")
		if got := strings.TrimSpace(c.runs("unseal " + sealed)); got != secret {
			t.Errorf("%s the guest unseals %q", when, got)
		}
	}
	p := vmPod(t, annotated(map[string]string{"nodevirt.io/vmi": fmt.Sprintf(vmi, true)}))
	attempt := func(number uint32) *container {
		return p.vm(suite.tiny, func(c *runtimeapi.ContainerConfig) {
			c.Metadata.Attempt, c.LogPath = number, fmt.Sprintf("guest_%d.log", number)
			c.Mounts = append(c.Mounts, &runtimeapi.Mount{ContainerPath: vmspec.StatePath, HostPath: folder})
		}).start().up()
	}
	c := attempt(0)
	c.installs("sealer")
	sealed := strings.TrimSpace(c.runs("seal " + secret))
	unseals(c, sealed, "in the same boot")
	c.reboots()
	unseals(c, sealed, "after a reboot")
	c.stop(60)
	c.removeIt()
	c = attempt(1)
	unseals(c, sealed, "in the next instance")
	c.stop(60)
	c.removeIt()

	other := vmPod(t, annotated(map[string]string{"nodevirt.io/vmi": fmt.Sprintf(vmi, false)})).vm(suite.tiny).start().up()
	other.installs("sealer")
	_, err := suite.Fetch(t.Context(), http.MethodPost, other.url("/cgi-bin/run"), "unseal "+sealed)
	assert.ErrorContains(t, err, "the TPM refuses command 0x157") // to load it
	other.stop(0)
}
