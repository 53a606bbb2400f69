package domain

import (
	"fmt"

	"libvirt.org/go/libvirtxml"

	"github.com/nodevirt/nodevirt/shim/vmspec"
)

// memorySlots is the number of times that a running guest can get RAM. QEMU reserves 1 GiB of the
// guest's address space for each.
const memorySlots = 16

// vcpus returns the vCPUs that the guest starts with, and those that it can get.
func vcpus(cpu vmspec.CPU) *libvirtxml.DomainVCPU {
	v := &libvirtxml.DomainVCPU{Placement: "static", Value: uint(cpu.MaxVCPUs())}
	if cpu.MaxSockets > 0 {
		v.Current = uint(cpu.VCPUs())
	}
	return v
}

// roomForMemory writes into d what the running guest can get. libvirt then requires a NUMA
// node, which has all vCPUs and the RAM of the start. The room is a step larger than the VM's
// maximum, which the caller of [Sizes.AddRAM] keeps: QEMU refuses slots without room, and the
// room is the same on both nodes of a migration, whatever the guest has got by then.
func roomForMemory(d *libvirtxml.Domain, spec vmspec.Spec) {
	if spec.MaxMemory == 0 {
		return
	}
	d.MaximumMemory = &libvirtxml.DomainMaxMemory{Value: uint((spec.MaxMemory + vmspec.MemoryStep) / mib), Unit: "MiB", Slots: memorySlots}
	d.CPU.Numa = &libvirtxml.DomainNuma{Cell: []libvirtxml.DomainCell{{
		ID: new(uint(0)), CPUs: fmt.Sprintf("0-%d", spec.CPU.MaxVCPUs()-1), Memory: uint(spec.Memory / mib), Unit: "MiB",
	}}}
}
