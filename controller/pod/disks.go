package pod

import (
	"cmp"
	"errors"
	"math"
	"path"
	"slices"

	corev1 "k8s.io/api/core/v1"
	kubevirt "kubevirt.io/api/core/v1"

	"github.com/nodevirt/nodevirt/shim/vmspec"
)

// mountRoot is the folder of the container under which volumes are mounted, each
// at a path that ends in its name: by that the node finds them.
const mountRoot = "/volumes"

// deviceRoot is the folder of block volumes' devices.
const deviceRoot = "/dev"

// bootImage is the image of the container that is the VM.
type bootImage struct {
	image  string
	policy corev1.PullPolicy
	// volume is the registry disk that the image holds, empty for other images.
	volume string
}

// boot returns the image of the VM's container: that of the first registry disk in
// boot order, or of the first one without an order. A VM without a registry disk
// has the image that holds its kernel, and otherwise the stub image. The annotation
// that names the container makes it a VM, and the node uses nothing of the stub
// image: so any version serves, and a node pulls it once.
func boot(s *kubevirt.VirtualMachineInstanceSpec, stub string) (bootImage, error) {
	order := map[string]uint{}
	for _, d := range s.Domain.Devices.Disks {
		if d.BootOrder != nil {
			order[d.Name] = *d.BootOrder
		}
	}
	var disks []vmspec.PodVolume
	for _, v := range vmspec.PodVolumes(s.Volumes) {
		if v.Kind.Registry {
			disks = append(disks, v)
		}
	}
	if len(disks) > 0 {
		rank := func(v vmspec.PodVolume) uint { return cmp.Or(order[v.Name], math.MaxUint) }
		first := slices.MinFunc(disks, func(a, b vmspec.PodVolume) int { return cmp.Compare(rank(a), rank(b)) })
		return bootImage{first.Source.Image.Reference, first.Source.Image.PullPolicy, first.Name}, nil
	}
	if kernel := kernelImage(s); kernel != nil {
		if kernel.Image == "" {
			return bootImage{}, errors.New("spec.domain.firmware.kernelBoot.container.image: " +
				"name the kernel's image: no volume has one")
		}
		return bootImage{image: kernel.Image, policy: kernel.ImagePullPolicy}, nil
	}
	if stub == "" {
		return bootImage{}, errors.New("spec.volumes: no containerDisk: " +
			"add one, or have the cluster's administrator set -stub-image of nodevirt-controller")
	}
	return bootImage{image: stub, policy: corev1.PullIfNotPresent}, nil
}

// mountVolumes gives the pod what each volume of the instance needs, but for the
// registry disk in the container's image, and the Secret of each access credential. The
// container mounts it, or has it as a device, at a path by which the node finds it.
func mountVolumes(s *corev1.PodSpec, vmi *kubevirt.VirtualMachineInstanceSpec, boot string, pvcs map[string]pvcVolume) {
	c := &s.Containers[0]
	for _, v := range slices.Concat(vmspec.PodVolumes(vmi.Volumes), vmspec.CredentialVolumes(vmi.AccessCredentials)) {
		if v.Source == nil || v.Kind.Registry && v.Name == boot {
			continue
		}
		pvc := pvcs[v.Name]
		if pvc.network != nil {
			pvc.addTo(s, v)
			continue
		}
		if v.Source.PersistentVolumeClaim != nil {
			v.Source.PersistentVolumeClaim.ReadOnly = pvc.ReadOnly
		}
		s.Volumes = append(s.Volumes, corev1.Volume{Name: v.Name, VolumeSource: *v.Source})
		if pvc.block {
			c.VolumeDevices = append(c.VolumeDevices, corev1.VolumeDevice{Name: v.Name, DevicePath: path.Join(deviceRoot, v.Name)})
			continue
		}
		c.VolumeMounts = append(c.VolumeMounts, corev1.VolumeMount{
			Name: v.Name, MountPath: path.Join(mountRoot, v.Name), ReadOnly: v.Kind.Needs != vmspec.NeedVolume || pvc.ReadOnly,
		})
	}
}

// pullSecrets are those of all volumes and of the kernel's image, each once.
func pullSecrets(s *kubevirt.VirtualMachineInstanceSpec) []corev1.LocalObjectReference {
	var secrets []corev1.LocalObjectReference
	seen := map[string]bool{"": true}
	add := func(name string) {
		if !seen[name] {
			seen[name] = true
			secrets = append(secrets, corev1.LocalObjectReference{Name: name})
		}
	}
	for _, v := range vmspec.PodVolumes(s.Volumes) {
		add(v.PullSecret)
	}
	if kernel := kernelImage(s); kernel != nil {
		add(kernel.ImagePullSecret)
	}
	return secrets
}

// serviceAccount is that of the instance, or of the volume with its token; empty for the
// default one.
func serviceAccount(s *kubevirt.VirtualMachineInstanceSpec) string {
	for _, v := range vmspec.PodVolumes(s.Volumes) {
		if v.ServiceAccount != "" {
			return v.ServiceAccount
		}
	}
	return s.ServiceAccountName
}
