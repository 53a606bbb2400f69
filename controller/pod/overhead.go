package pod

import (
	"strconv"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/util/validation/field"
	kubevirt "kubevirt.io/api/core/v1"

	"github.com/nodevirt/nodevirt/shim/vmspec"
)

// AnnotationReserved is on the pod of an instance whose QEMU needs more than the RuntimeClass's overhead, and is how much of its
// memory limit is QEMU's, in bytes.
const AnnotationReserved = "vm.nodevirt.io/reserved-memory"

// What QEMU and the processes beside it use at most, in bytes, beside the guest's RAM, as in docs/pod-resources.md.
const (
	mebibyte = 1 << 20
	// needsOfAll are those of each VM: QEMU's heap and libraries, a DHCP server, a program that serves a disk.
	needsOfAll = 40 * mebibyte
	// needsOfDisplay are the graphics card's memory, and the pictures that VNC keeps.
	needsOfDisplay = 32 * mebibyte
	// needsOfTPM are those of the program that is the TPM.
	needsOfTPM = 8 * mebibyte
	// needsOfFilesystem are those of the program that serves a folder.
	needsOfFilesystem = 16 * mebibyte
	// needsOfVCPU are a thread with its stack, and what KVM keeps for it.
	needsOfVCPU = 2 * mebibyte
	// needsOfEmulatedVCPU are a vCPU's cache of translated addresses.
	needsOfEmulatedVCPU = 8 * mebibyte
	// needsOfDevice are the queues of a disk or card, and what waits in them.
	needsOfDevice = mebibyte
	// pageTables is the part of the RAM that page tables take, once those of QEMU and once those of the guest.
	pageTables = 256
)

// withOverhead returns the instance as if it had reserved what its QEMU may need beyond the RuntimeClass's overhead, which
// is the same for all: the pod's limit would end the guest. A class that is not known adds nothing. Added is what is QEMU's
// then, in bytes; 0 if the instance is as it was.
func withOverhead(vmi *kubevirt.VirtualMachineInstance, around Surroundings) (_ *kubevirt.VirtualMachineInstance, added int64) {
	more := overhead(&vmi.Spec, around)
	if more == 0 {
		return vmi, 0
	}
	vmi = vmi.DeepCopy()
	m := &vmi.Spec.Domain.Memory
	if *m == nil {
		*m = new(kubevirt.Memory)
	}
	if (*m).ReservedOverhead == nil {
		(*m).ReservedOverhead = new(kubevirt.ReservedOverhead)
	}
	sum := *resource.NewQuantity(more, resource.BinarySI)
	if own := (*m).ReservedOverhead.AddedOverhead; own != nil {
		sum.Add(*own)
	}
	(*m).ReservedOverhead.AddedOverhead = &sum
	return vmi, sum.Value()
}

// overhead returns what an instance's QEMU may need beyond the RuntimeClass's overhead, in bytes, a multiple of 1 MiB.
func overhead(s *kubevirt.VirtualMachineInstanceSpec, around Surroundings) int64 {
	if around.Overhead == nil {
		return 0
	}
	vm, _ := vmspec.Preview(field.NewPath("spec"), s)
	ram := vm.Memory
	if ram == 0 { // a limit or a request decides
		ram = max(s.Domain.Resources.Limits.Memory().Value(), s.Domain.Resources.Requests.Memory().Value())
	}
	all := float64(needs(vm, ram, around.Config.Emulates())) * around.Config.OverheadRatio()
	more := int64(all) - *around.Overhead
	return max(more+mebibyte-1, 0) / mebibyte * mebibyte
}

// needs returns what the QEMU of a VM that boots with so much RAM needs at most, for all that the running VM can get.
func needs(vm vmspec.Spec, ram int64, emulated bool) int64 {
	vcpus := int64(max(vm.CPU.MaxSockets, vm.CPU.Sockets) * vm.CPU.Cores * vm.CPU.Threads)
	n := needsOfAll + vcpus*needsOfVCPU + int64(len(vm.Disks)+len(vm.Interfaces))*needsOfDevice
	if vm.HugePage == 0 {
		n += max(ram, vm.MaxMemory) / pageTables
	}
	if vm.Display {
		n += needsOfDisplay
	}
	if vm.TPM {
		n += needsOfTPM
	}
	n += int64(len(vm.Filesystems)) * needsOfFilesystem
	if emulated {
		n += vcpus*needsOfEmulatedVCPU + vmspec.TranslatedCode(ram)
	}
	return n
}

// reserved returns how much of the memory limit of an instance's pod is QEMU's, in bytes.
func reserved(p *corev1.Pod, vm vmspec.Spec) int64 {
	if n, err := strconv.ParseInt(p.Annotations[AnnotationReserved], 10, 64); err == nil {
		return n
	}
	return vm.AddedOverhead // all that it can be
}
