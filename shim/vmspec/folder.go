package vmspec

import (
	"fmt"
	"path"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// Folder returns the path on the node of a volume that a container mounts at a path which ends
// in a name, and may write. The volume is no block device, no image, and none with files of
// Kubernetes objects.
func Folder(name string, container *runtimeapi.ContainerConfig) (string, error) {
	mounts, err := readMounts(container)
	if err != nil {
		return "", err
	}
	m, found := mounts.find(name)
	var problem string
	switch {
	case !found:
		return "", fmt.Errorf("container %s has no volume %q; mount it at a path that ends in /%s",
			excerpt(container.GetMetadata().GetName()), excerpt(name), excerpt(name))
	case m.block:
		problem = "a block device; use a PVC with volumeMode Filesystem"
	case m.host == "":
		problem = "no PVC"
	case m.readOnly:
		problem = "read-only"
	default:
		return m.host, nil
	}
	return "", fmt.Errorf("volume %q of container %s is %s", name, excerpt(container.GetMetadata().GetName()), problem)
}

// EmptyDir returns the path on the node of the emptyDir that a container mounts at a path which ends
// in a name.
func EmptyDir(name string, container *runtimeapi.ContainerConfig) (string, error) {
	for _, m := range container.GetMounts() {
		if path.Base(m.GetContainerPath()) != name {
			continue
		}
		host := m.GetHostPath()
		if !path.IsAbs(host) || path.Clean(host) != host || !printable(host) || path.Base(path.Dir(host)) != "kubernetes.io~empty-dir" {
			return "", fmt.Errorf("volume %q of container %s is no emptyDir", name, excerpt(container.GetMetadata().GetName()))
		}
		return host, nil
	}
	return "", fmt.Errorf("container %s has no volume %q; mount an emptyDir at a path that ends in /%s",
		excerpt(container.GetMetadata().GetName()), excerpt(name), excerpt(name))
}
