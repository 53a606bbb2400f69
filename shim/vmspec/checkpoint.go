package vmspec

import (
	"errors"
	"fmt"
	"path"
	"slices"
	"strings"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// CheckpointPath is where the VM's container mounts the volume with a checkpoint, from which the
// guest goes on. CheckpointFile is the name of the archive there.
const (
	CheckpointPath = "/var/run/nodevirt-checkpoint"
	CheckpointFile = "checkpoint.tar"
)

// Checkpoint returns the path on the node of the volume with the checkpoint; empty for a guest
// that boots.
func Checkpoint(c *runtimeapi.ContainerConfig) (string, error) {
	at := slices.IndexFunc(c.GetMounts(), func(m *runtimeapi.Mount) bool { return m.GetContainerPath() == CheckpointPath })
	if at < 0 {
		return "", nil
	}
	m, err := readMount(c.GetMounts()[at])
	if err == nil && (m.host == "" || strings.Contains(path.Clean(m.host), "/volume-subpaths/")) {
		err = errors.New("a checkpoint needs a PVC with volumeMode Filesystem, without subPath")
	}
	if err != nil {
		return "", fmt.Errorf("container %s: volume mounted at %s: %w", excerpt(c.GetMetadata().GetName()), CheckpointPath, err)
	}
	return m.host, nil
}
