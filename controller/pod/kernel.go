package pod

import (
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	kubevirt "kubevirt.io/api/core/v1"

	"github.com/nodevirt/nodevirt/shim/vmspec"
)

// kernelVolume is the pod's volume with the kernel's image.
const kernelVolume = "nodevirt-kernel"

// kernelImage returns what the instance says of its kernel's image; nil without one.
func kernelImage(s *kubevirt.VirtualMachineInstanceSpec) *kubevirt.KernelBootContainer {
	if f := s.Domain.Firmware; f != nil && f.KernelBoot != nil {
		return f.KernelBoot.Container
	}
	return nil
}

// addKernel has the VM's container mount the image of its kernel, if that is not the container's own.
func addKernel(s *corev1.PodSpec, vmi *kubevirt.VirtualMachineInstanceSpec) error {
	k, c := kernelImage(vmi), &s.Containers[0]
	if k == nil || k.Image == "" || k.Image == c.Image {
		return nil
	}
	if i := slices.IndexFunc(vmi.Volumes, func(v kubevirt.Volume) bool { return v.Name == kernelVolume }); i >= 0 {
		return fmt.Errorf("spec.volumes[%d].name: %s is the name of the volume with the kernel's image; use another name", i, kernelVolume)
	}
	s.Volumes = append(s.Volumes, corev1.Volume{Name: kernelVolume, VolumeSource: corev1.VolumeSource{
		Image: &corev1.ImageVolumeSource{Reference: k.Image, PullPolicy: k.ImagePullPolicy},
	}})
	c.VolumeMounts = append(c.VolumeMounts, corev1.VolumeMount{Name: kernelVolume, MountPath: vmspec.KernelPath, ReadOnly: true})
	return nil
}
