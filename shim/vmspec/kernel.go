package vmspec

import (
	"fmt"
	"slices"

	"k8s.io/apimachinery/pkg/util/validation/field"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
	kubevirt "kubevirt.io/api/core/v1"
)

// KernelPath is where the VM's container mounts the image with its kernel, if that is not the container's own.
const KernelPath = "/var/run/nodevirt-kernel"

// Kernel is a kernel that is booted directly. Paths are absolute paths in its image.
type Kernel struct {
	Path   string `json:"path,omitempty"`
	Initrd string `json:"initrd,omitempty"`
	Args   string `json:"args,omitempty"`
	// Image is the image, by its id, as the kubelet passes it; empty for the container's own.
	Image string `json:"image,omitempty"`
}

// readKernelImage returns the image that a container mounts for its kernel; empty for none.
func readKernelImage(c *runtimeapi.ContainerConfig) (string, error) {
	at := slices.IndexFunc(c.GetMounts(), func(m *runtimeapi.Mount) bool { return m.GetContainerPath() == KernelPath })
	if at < 0 {
		return "", nil
	}
	m := c.GetMounts()[at]
	if m.GetImage().GetImage() == "" || m.GetImageSubPath() != "" {
		return "", fmt.Errorf("container %s: volume mounted at %s: must be an image volume without subPath, for the VM's kernel",
			excerpt(c.GetMetadata().GetName()), KernelPath)
	}
	return m.GetImage().GetImage(), nil
}

func readKernel(at *field.Path, boot *kubevirt.KernelBoot, r request) (*Kernel, field.ErrorList) {
	if boot == nil {
		if r.kernelImage != "" {
			return nil, field.ErrorList{refused(at, "is not given, and container %s mounts an image for a kernel at %s; remove the volume",
				excerpt(r.container), KernelPath)}
		}
		return nil, nil
	}
	c := boot.Container
	switch {
	case c == nil || c.KernelPath == "" && c.InitrdPath == "":
		at := at.Child("container")
		return nil, field.ErrorList{invalid(at, field.OmitValueType{}, "%s must be defined with at least one of the following: kernelPath, initrdPath", at)}
	case c.KernelPath == "":
		return nil, field.ErrorList{field.Required(at.Child("container", "kernelPath"), "kernelArgs and initrdPath go with a kernel")}
	case c.Image != "" && r.image != "" && r.kernelImage == "" && c.Image != r.image:
		return nil, field.ErrorList{invalid(at.Child("container", "image"), c.Image,
			"must be the container's own image, %s, or be mounted at %s as an image volume", excerpt(r.image), KernelPath)}
	}
	return &Kernel{Path: c.KernelPath, Initrd: c.InitrdPath, Args: boot.KernelArgs, Image: r.kernelImage}, nil
}
