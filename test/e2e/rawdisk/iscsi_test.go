package rawdisk

import (
	"context"
	"errors"
	"path/filepath"
	"testing"

	"gotest.tools/v3/assert"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/nodevirt/nodevirt/shim/vmspec"
	"github.com/nodevirt/nodevirt/test/wait"
)

// TestISCSIServesAClone: where files can be cloned, what is served over iSCSI is the clone itself.
func TestISCSIServesAClone(t *testing.T) {
	p := runPod(t, "iscsi-clone", func(c *runtimeapi.PodSandboxConfig) {
		c.Annotations = map[string]string{vmspec.AnnotationDiskMode: string(vmspec.ModeISCSI)}
	})
	id, err := p.create(t.Context(), suite.halt)
	assert.NilError(t, err)
	_, err = suite.cri.StartContainer(t.Context(), &runtimeapi.StartContainerRequest{ContainerId: id})
	assert.NilError(t, err)
	path := disk(t, id)
	if filepath.Base(path) != "disk.raw" {
		t.Errorf("the disk is %s", path)
	}
	wait.Success(t, "the node's targets", func(context.Context) error {
		all, err := suite.Targets(t.Context())
		if err != nil {
			return err
		}
		for _, s := range all {
			if s.Path == path && len(s.Initiators) == 1 {
				return nil
			}
		}
		return errors.New("no initiator uses the clone over iSCSI")
	})
}
