package vmspec

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/util/validation/field"
	kubevirt "kubevirt.io/api/core/v1"
)

const (
	defaultMachine   = "q35"
	defaultInterface = "default"
	podDevice        = "eth0"
	defaultModel     = "virtio"
)

// checkVMI finds what the table of single fields can't: fields that are missing
// or contradict each other. It makes the machine of a pod without limits and
// throws it away, so that there is one code for both.
func checkVMI(root *field.Path, vmi *kubevirt.VirtualMachineInstanceSpec) field.ErrorList {
	_, problems := translate(root, vmi, request{})
	return problems
}

// fromVMI returns the machine that a VMI describes, in a container's limits.
func fromVMI(w wishes, r request) (Spec, error) {
	if len(w.origins) > 0 {
		return Spec{}, fmt.Errorf("%s: goes with pods without %s", AnnotationDiskOrigin, AnnotationVMI)
	}
	t, problems := translate(field.NewPath("spec"), w.vmi, r)
	err := annotationError(problems)
	if err != nil {
		return Spec{}, err
	}
	if t.Memory == 0 {
		if t.Memory, err = r.memory(); err != nil {
			return Spec{}, err
		}
	}
	return t.withSeed(w, r)
}

// checkSeed finds what the annotations and the VMI's volumes contradict each other in.
func checkSeed(w wishes) error {
	if w.vmi == nil {
		return nil
	}
	t, _ := translate(field.NewPath("spec"), w.vmi, request{}) // passed checkVMI
	_, err := t.withSeed(w, request{})
	return errors.Join(err, w.modes.apply(t.Disks))
}

// translation is what a VMI says of a machine: the machine but for its seed,
// whose other half stands in annotations.
type translation struct {
	Spec
	cloudInit *cloudInit // nil without such a volume
}

// withSeed returns the machine with the seed of its volume and the annotations.
func (t translation) withSeed(w wishes, r request) (Spec, error) {
	spec := t.Spec
	w, err := w.withCloudInit(t.cloudInit)
	if err != nil || !w.seeded {
		return spec, err
	}
	if t.cloudInit == nil {
		seed := seedDisk()
		if slices.ContainsFunc(spec.Disks, func(d Disk) bool { return d.Name == seed.Name }) {
			return Spec{}, fmt.Errorf("%s: the disk name %q is taken by the seed of the "+
				"cloud-init annotations; rename the disk, or add a cloudInitNoCloud volume",
				AnnotationVMI, seed.Name)
		}
		spec.Disks = append(spec.Disks, seed)
	}
	if spec.Seed, err = w.seed(r.instance, spec.Hostname); err != nil || t.cloudInit == nil {
		return spec, err
	}
	if t.cloudInit.userDataSecret {
		spec.Seed.UserDataFrom = t.cloudInit.folder
	}
	if t.cloudInit.networkSecret {
		spec.Seed.NetworkConfigFrom = t.cloudInit.folder
	}
	return spec, nil
}

func translate(
	root *field.Path, vmi *kubevirt.VirtualMachineInstanceSpec, r request,
) (translation, field.ErrorList) {
	domain := root.Child("domain")
	cpu, problems := processor(domain, &vmi.Domain, r)
	memory, p := guestMemory(domain, &vmi.Domain, r)
	problems = append(problems, p...)
	firmware, p := firmware(domain.Child("firmware"), vmi, r)
	problems = append(problems, p...)
	volumes, p := readVolumes(root, vmi.Volumes, r)
	problems = append(problems, p...)
	disks, p := disks(domain.Child("devices", "disks"), vmi.Domain.Devices.Disks, volumes)
	problems = append(problems, p...)
	interfaces, p := interfaces(root, vmi, cpu.Sockets*cpu.Cores*cpu.Threads)
	problems = append(problems, p...)
	machine := defaultMachine
	if m := vmi.Domain.Machine; m != nil && m.Type != "" {
		machine = m.Type
	}
	balloon := vmi.Domain.Devices.AutoattachMemBalloon
	display := vmi.Domain.Devices.AutoattachGraphicsDevice // KubeVirt's default is true
	name := vmi.Hostname
	if name == "" {
		name = r.hostname
	}
	return translation{
		Spec: Spec{
			CPU:        cpu,
			Memory:     memory,
			Machine:    machine,
			Firmware:   firmware,
			Disks:      disks,
			Interfaces: interfaces,
			RNG:        vmi.Domain.Devices.Rng != nil,
			Balloon:    balloon == nil || *balloon,
			Display:    display != nil && *display,
			Hostname:   name,
		},
		cloudInit: volumes.cloudInit,
	}, problems
}

// firmware reads what the machine tells its guest and what it boots.
func firmware(
	at *field.Path, vmi *kubevirt.VirtualMachineInstanceSpec, r request,
) (Firmware, field.ErrorList) {
	f := vmi.Domain.Firmware
	if f == nil {
		return Firmware{}, nil
	}
	result := Firmware{UUID: strings.ToLower(string(f.UUID)), Serial: f.Serial}
	boot := f.KernelBoot
	if boot == nil {
		return result, nil
	}
	at = at.Child("kernelBoot")
	c := boot.Container
	switch {
	case c == nil || c.KernelPath == "":
		return result, field.ErrorList{field.Required(at.Child("container", "kernelPath"),
			"kernelArgs and initrdPath go with a kernel")}
	case c.Image != "" && r.image != "" && !isOwnImage(c.Image, vmi, r):
		return result, field.ErrorList{invalid(at.Child("container", "image"), c.Image,
			"must be the VM's own image, %s, or left out", excerpt(r.image))}
	}
	result.Kernel = &Kernel{Path: c.KernelPath, Initrd: c.InitrdPath, Args: boot.KernelArgs}
	return result, nil
}

func isOwnImage(image string, vmi *kubevirt.VirtualMachineInstanceSpec, r request) bool {
	for _, v := range vmi.Volumes {
		if v.ContainerDisk != nil && v.ContainerDisk.Image == image {
			return true
		}
	}
	return image == r.image
}
