package e2e

import (
	"strconv"
	"strings"
	"testing"

	"gotest.tools/v3/assert"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/nodevirt/nodevirt/test/images"
	"github.com/nodevirt/nodevirt/test/wait"
)

const savedVMI = `{
	"domain": {"devices": {
		"disks": [{"name": "root", "disk": {"bus": "virtio"}}, {"name": "data", "disk": {"bus": "virtio"}}],
		"interfaces": [{"name": "default", "masquerade": {}}]
	}},
	"networks": [{"name": "default", "pod": {}}],
	"volumes": [{"name": "root", "containerDisk": {"image": ""}}, {"name": "data", "emptyDisk": {"capacity": "64Mi"}}]
}`

// savedPod runs a pod like the one that was saved.
func savedPod(t *testing.T, name string) *pod {
	t.Helper()
	return vmPod(t, named(name), annotated(map[string]string{"nodevirt.io/vmi": savedVMI}))
}

func savedConfig(p *pod, image string) *runtimeapi.ContainerConfig {
	config := p.vmConfig(image)
	config.Linux.Resources.MemoryLimitInBytes = 384 * mebibyte
	return config
}

func (c *container) save(location string) error {
	_, err := suite.cri.CheckpointContainer(c.t.Context(), &runtimeapi.CheckpointContainerRequest{ContainerId: c.id, Location: location})
	return err
}

func (c *container) sh(line string) string {
	c.t.Helper()
	return strings.TrimSpace(string(c.exec("sh", "-c", line).Stdout))
}

// count returns how far a process of the guest has counted in memory.
func (c *container) count() int {
	c.t.Helper()
	n := 0
	wait.Until(c.t, "the guest counts", func() bool {
		var err error
		n, err = strconv.Atoi(c.sh("cat /tmp/count")) // it is being written
		return err == nil
	})
	return n
}

// extract returns the files of an archive.
func extract(t *testing.T, path string) []images.File {
	t.Helper()
	all, err := images.Extract(path, t.TempDir())
	assert.NilError(t, err)
	return all
}
