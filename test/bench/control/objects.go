package control

import (
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/uuid"
	kubevirt "kubevirt.io/api/core/v1"
)

// machine is a VirtualMachine of such an instance, which is to run.
func machine(ns, name string) *kubevirt.VirtualMachine {
	always, template := kubevirt.RunStrategyAlways, instance("", "")
	template.Spec.Domain.Firmware = &kubevirt.Firmware{UUID: uuid.NewUUID()} // as admission gives it
	return &kubevirt.VirtualMachine{
		ObjectMeta: metav1.ObjectMeta{
			Name: name, Namespace: ns, Finalizers: []string{kubevirt.VirtualMachineControllerFinalizer},
		},
		Spec: kubevirt.VirtualMachineSpec{
			RunStrategy: &always,
			Template: &kubevirt.VirtualMachineInstanceTemplateSpec{
				ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{"app": "bench"}}, Spec: template.Spec,
			},
		},
	}
}

// instance is one as people write them, with as much in it.
func instance(ns, name string) *kubevirt.VirtualMachineInstance {
	memory := resource.MustParse("1Gi")
	return &kubevirt.VirtualMachineInstance{
		ObjectMeta: metav1.ObjectMeta{
			Name: name, Namespace: ns,
			Labels:     map[string]string{"app": "bench", "kubevirt.io/domain": name},
			Finalizers: []string{kubevirt.VirtualMachineInstanceFinalizer},
		},
		Spec: kubevirt.VirtualMachineInstanceSpec{
			Domain: kubevirt.DomainSpec{
				CPU:    &kubevirt.CPU{Cores: 2},
				Memory: &kubevirt.Memory{Guest: &memory},
				Devices: kubevirt.Devices{
					Disks: []kubevirt.Disk{disk("root"), disk("seed")},
					Interfaces: []kubevirt.Interface{{
						Name:                   "default",
						InterfaceBindingMethod: kubevirt.InterfaceBindingMethod{Masquerade: new(kubevirt.InterfaceMasquerade)},
					}},
				},
			},
			Networks: []kubevirt.Network{{Name: "default", NetworkSource: kubevirt.NetworkSource{Pod: new(kubevirt.PodNetwork)}}},
			Volumes: []kubevirt.Volume{
				{Name: "root", VolumeSource: kubevirt.VolumeSource{
					ContainerDisk: &kubevirt.ContainerDiskSource{Image: "registry.example.com/guest:1"}}},
				{Name: "seed", VolumeSource: kubevirt.VolumeSource{
					CloudInitNoCloud: &kubevirt.CloudInitNoCloudSource{UserData: "#cloud-config\npackages: [nginx]\n"}}},
			},
		},
	}
}

func disk(name string) kubevirt.Disk {
	return kubevirt.Disk{Name: name, DiskDevice: kubevirt.DiskDevice{Disk: &kubevirt.DiskTarget{Bus: "virtio"}}}
}
