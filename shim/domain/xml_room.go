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
// node, which has all vCPUs and the RAM of the start.
func roomForMemory(d *libvirtxml.Domain, spec vmspec.Spec) {
	if spec.MaxMemory == 0 {
		return
	}
	d.MaximumMemory = &libvirtxml.DomainMaxMemory{Value: uint(spec.MaxMemory / mib), Unit: "MiB", Slots: memorySlots}
	d.CPU.Numa = &libvirtxml.DomainNuma{Cell: []libvirtxml.DomainCell{{
		ID: new(uint(0)), CPUs: fmt.Sprintf("0-%d", spec.CPU.MaxVCPUs()-1), Memory: uint(spec.Memory / mib), Unit: "MiB",
	}}}
}
