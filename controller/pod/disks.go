package pod

import (
	"cmp"
	"errors"
	"math"
	"path"
	"slices"

	corev1 "k8s.io/api/core/v1"
	kubevirt "kubevirt.io/api/core/v1"
)

// mountRoot is the folder of the container under which volumes are mounted, each
// at a path that ends in its name: by that the node finds them.
const mountRoot = "/volumes"

// bootImage is the image of the container that is the VM.
type bootImage struct {
	image  string
	policy corev1.PullPolicy
	// volume is the registry disk that the image holds, empty for other images.
	volume string
}

// boot returns the image of the VM's container: that of the first registry disk in
// boot order, or of the first one without an order. A VM without a registry disk
// has the image that holds its kernel, and otherwise the stub image, which holds
// nothing: the annotation that names the container makes it a VM.
func boot(s *kubevirt.VirtualMachineInstanceSpec, stub string) (bootImage, error) {
	order := map[string]uint{}
	for _, d := range s.Domain.Devices.Disks {
		if d.BootOrder != nil {
			order[d.Name] = *d.BootOrder
		}
	}
	var images []kubevirt.Volume
	for _, v := range s.Volumes {
		if v.ContainerDisk != nil {
			images = append(images, v)
		}
	}
	if len(images) > 0 {
		rank := func(v kubevirt.Volume) uint { return cmp.Or(order[v.Name], math.MaxUint) }
		first := slices.MinFunc(images, func(a, b kubevirt.Volume) int { return cmp.Compare(rank(a), rank(b)) })
		return bootImage{first.ContainerDisk.Image, first.ContainerDisk.ImagePullPolicy, first.Name}, nil
	}
	if f := s.Domain.Firmware; f != nil && f.KernelBoot != nil && f.KernelBoot.Container != nil {
		return bootImage{image: f.KernelBoot.Container.Image, policy: f.KernelBoot.Container.ImagePullPolicy}, nil
	}
	if stub == "" {
		return bootImage{}, errors.New("spec.volumes: no containerDisk: " +
			"add one, or have the cluster's administrator set -stub-image of nodevirt-controller")
	}
	return bootImage{image: stub}, nil
}

// mountImages gives the pod an OCI image volume for each registry disk but the
// one in the container's image.
func mountImages(s *corev1.PodSpec, volumes []kubevirt.Volume, boot string) {
	for _, v := range volumes {
		if v.ContainerDisk == nil || v.Name == boot {
			continue
		}
		s.Volumes = append(s.Volumes, corev1.Volume{Name: v.Name, VolumeSource: corev1.VolumeSource{
			Image: &corev1.ImageVolumeSource{Reference: v.ContainerDisk.Image, PullPolicy: v.ContainerDisk.ImagePullPolicy},
		}})
		mount(s, v.Name)
	}
}

// mountSecrets gives the pod the Secrets that cloud-init's volumes name, each
// volume its own in one folder. The kubelet reads them: the controller may not.
func mountSecrets(s *corev1.PodSpec, volumes []kubevirt.Volume) {
	for _, v := range volumes {
		if v.CloudInitNoCloud == nil {
			continue
		}
		var sources []corev1.VolumeProjection
		seen := map[string]bool{}
		for _, ref := range []*corev1.LocalObjectReference{
			v.CloudInitNoCloud.UserDataSecretRef, v.CloudInitNoCloud.NetworkDataSecretRef,
		} {
			if ref != nil && !seen[ref.Name] {
				seen[ref.Name] = true
				sources = append(sources, corev1.VolumeProjection{Secret: &corev1.SecretProjection{LocalObjectReference: *ref}})
			}
		}
		if len(sources) == 0 {
			continue
		}
		s.Volumes = append(s.Volumes, corev1.Volume{Name: v.Name, VolumeSource: corev1.VolumeSource{
			Projected: &corev1.ProjectedVolumeSource{Sources: sources},
		}})
		mount(s, v.Name)
	}
}

// mount has the node find a volume by the end of the path.
func mount(s *corev1.PodSpec, name string) {
	c := &s.Containers[0]
	c.VolumeMounts = append(c.VolumeMounts, corev1.VolumeMount{
		Name: name, MountPath: path.Join(mountRoot, name), ReadOnly: true,
	})
}

// pullSecrets are those of all registry disks, each once.
func pullSecrets(s *kubevirt.VirtualMachineInstanceSpec) []corev1.LocalObjectReference {
	var secrets []corev1.LocalObjectReference
	seen := map[string]bool{"": true}
	for _, v := range s.Volumes {
		if v.ContainerDisk == nil || seen[v.ContainerDisk.ImagePullSecret] {
			continue
		}
		seen[v.ContainerDisk.ImagePullSecret] = true
		secrets = append(secrets, corev1.LocalObjectReference{Name: v.ContainerDisk.ImagePullSecret})
	}
	return secrets
}
