package pod_test

import (
	"slices"
	"strings"
	"testing"

	"gotest.tools/v3/assert"
	corev1 "k8s.io/api/core/v1"
	kubevirt "kubevirt.io/api/core/v1"

	"github.com/nodevirt/nodevirt/controller/pod"
	"github.com/nodevirt/nodevirt/shim/vmspec"
)

// TestFilledOrigins: a PVC that is marked as a copy of an image does not become one again, whatever the guest wrote to
// it, and what the instance boots from stays.
func TestFilledOrigins(t *testing.T) {
	const guest, stub = "registry.example.com/guest:1", "registry.example.com/stub:1"
	image := func(vmi *kubevirt.VirtualMachineInstance, name, image string) {
		vmi.Spec.Volumes = append(vmi.Spec.Volumes, kubevirt.Volume{Name: name, VolumeSource: kubevirt.VolumeSource{
			ContainerDisk: &kubevirt.ContainerDiskSource{Image: image, ImagePullSecret: "registry"},
		}})
	}
	disk := func(vmi *kubevirt.VirtualMachineInstance, name string, order uint) {
		d := kubevirt.Disk{Name: name}
		if order > 0 {
			d.BootOrder = &order
		}
		vmi.Spec.Domain.Devices.Disks = append(vmi.Spec.Domain.Devices.Disks, d)
	}
	pvc := func(vmi *kubevirt.VirtualMachineInstance, name, claim string, order uint) {
		vmi.Spec.Volumes = append(vmi.Spec.Volumes, kubevirt.Volume{Name: name, VolumeSource: kubevirt.VolumeSource{
			PersistentVolumeClaim: &kubevirt.PersistentVolumeClaimVolumeSource{
				PersistentVolumeClaimVolumeSource: corev1.PersistentVolumeClaimVolumeSource{ClaimName: claim},
			},
		}})
		disk(vmi, name, order)
	}
	for name, tt := range map[string]struct {
		annotation           string
		change               func(*kubevirt.VirtualMachineInstance)
		stub                 string
		image, origin, boots string // of the pod, and the disk with bootOrder 1
		volumes              string
	}{
		"not filled": {
			"root=image", func(vmi *kubevirt.VirtualMachineInstance) { pvc(vmi, "root", "block", 0); image(vmi, "image", guest) }, stub,
			guest, "root=image", "", "root",
		},
		"filled": {
			"root=image", func(vmi *kubevirt.VirtualMachineInstance) { pvc(vmi, "root", "filled", 0); image(vmi, "image", guest) }, stub,
			stub, "", "", "root",
		},
		"no stub image": {
			"root=image", func(vmi *kubevirt.VirtualMachineInstance) { pvc(vmi, "root", "filled", 0); image(vmi, "image", guest) }, "",
			guest, "", "", "root",
		},
		"one of two": {
			" root = image ,data=more", func(vmi *kubevirt.VirtualMachineInstance) {
				pvc(vmi, "root", "filled", 0)
				pvc(vmi, "data", "block", 0)
				image(vmi, "image", guest)
				image(vmi, "more", "registry.example.com/more:1")
			}, stub, "registry.example.com/more:1", "data=more", "", "root data",
		},
		"one image of two": {
			"root=image,data=image", func(vmi *kubevirt.VirtualMachineInstance) {
				pvc(vmi, "root", "filled", 0)
				pvc(vmi, "data", "block", 0)
				image(vmi, "image", guest)
			}, stub, guest, "data=image", "", "root data",
		},
		"boot order of the image": {
			"root=image", func(vmi *kubevirt.VirtualMachineInstance) {
				pvc(vmi, "data", "block", 2)
				disk(vmi, "image", 1)
				pvc(vmi, "root", "filled", 0)
				image(vmi, "image", guest)
			}, stub, stub, "", "root", "data root",
		},
		"the first disk": {
			"root=image", func(vmi *kubevirt.VirtualMachineInstance) {
				disk(vmi, "image", 0)
				pvc(vmi, "data", "block", 0)
				pvc(vmi, "root", "filled", 0)
				image(vmi, "image", guest)
			}, stub, stub, "", "root", "data root",
		},
		"own boot order": {
			"root=image", func(vmi *kubevirt.VirtualMachineInstance) {
				disk(vmi, "image", 1)
				pvc(vmi, "data", "block", 2)
				pvc(vmi, "root", "filled", 3)
				image(vmi, "image", guest)
			}, stub, stub, "", "", "data root",
		},
		"the image's kernel": {
			"root=image", func(vmi *kubevirt.VirtualMachineInstance) {
				pvc(vmi, "root", "filled", 0)
				image(vmi, "image", guest)
				vmi.Spec.Domain.Firmware = &kubevirt.Firmware{KernelBoot: &kubevirt.KernelBoot{
					Container: &kubevirt.KernelBootContainer{KernelPath: "/boot/vmlinuz"}}}
			}, stub, guest, "", "", "root",
		},
	} {
		t.Run(name, func(t *testing.T) {
			vmi := read(t, "least")
			vmi.Spec.Volumes, vmi.Spec.Domain.Devices.Disks = nil, nil
			vmi.Annotations = map[string]string{vmspec.AnnotationDiskOrigin: tt.annotation}
			tt.change(vmi)
			before := vmi.DeepCopy()
			p, err := pod.New(vmi, pvcObjects(t), nil, pod.Options{RuntimeClass: "vm", StubImage: tt.stub})
			assert.NilError(t, err)
			assert.DeepEqual(t, vmi, before)
			assert.Equal(t, p.Spec.Containers[0].Image, tt.image)
			assert.Equal(t, p.Annotations[vmspec.AnnotationDiskOrigin], tt.origin)
			spec, problems := vmspec.DecodeVMI([]byte(p.Annotations[vmspec.AnnotationVMI]))
			assert.Equal(t, len(problems), 0, "%v", problems)
			boots := ""
			for _, d := range spec.Domain.Devices.Disks {
				if d.BootOrder != nil && *d.BootOrder == 1 {
					boots = d.Name
				}
			}
			assert.Equal(t, boots, tt.boots)
			var volumes []string
			for _, v := range p.Spec.Volumes {
				if v.PersistentVolumeClaim != nil {
					volumes = append(volumes, v.Name)
				}
			}
			assert.Equal(t, strings.Join(volumes, " "), tt.volumes)
			secret := slices.Contains(p.Spec.ImagePullSecrets, corev1.LocalObjectReference{Name: "registry"})
			if needed := tt.image != stub; needed != secret {
				t.Errorf("pull secrets %v", p.Spec.ImagePullSecrets)
			}
		})
	}
}
