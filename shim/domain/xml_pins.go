package domain

import (
	"fmt"
	"slices"
	"strconv"

	"libvirt.org/go/libvirtxml"

	"github.com/nodevirt/nodevirt/shim/hostcpu"
)

// placement writes a VM's pins into d, and for a guest that sees the node's NUMA nodes its memory.
func placement(d *libvirtxml.Domain, desc Description) error {
	pins, err := PinsOf(desc)
	if err != nil || len(pins.VCPUs) == 0 {
		return err
	}
	tune := &libvirtxml.DomainCPUTune{}
	for vcpu, cpu := range pins.VCPUs {
		tune.VCPUPin = append(tune.VCPUPin, libvirtxml.DomainCPUTuneVCPUPin{VCPU: uint(vcpu), CPUSet: strconv.Itoa(cpu.ID)})
	}
	for i, cpus := range pins.IOThreads {
		tune.IOThreadPin = append(tune.IOThreadPin, libvirtxml.DomainCPUTuneIOThreadPin{IOThread: uint(i + 1), CPUSet: hostcpu.Format(cpus)})
	}
	if pins.Emulator != nil {
		tune.EmulatorPin = &libvirtxml.DomainCPUTuneEmulatorPin{CPUSet: hostcpu.Format(pins.Emulator)}
	}
	d.CPUTune = tune
	if desc.Accelerator == KVM && d.CPU.Mode == "host-passthrough" { // libvirt has it for no other
		if d.Features.KVM == nil {
			d.Features.KVM = &libvirtxml.DomainFeatureKVM{}
		}
		d.Features.KVM.HintDedicated = on(true)
	}
	if mask := desc.Spec.CPU.Realtime; mask != "" {
		tune.VCPUSched = []libvirtxml.DomainCPUTuneVCPUSched{{VCPUs: mask, Scheduler: "fifo", Priority: new(1)}}
		d.Features.PMU = &libvirtxml.DomainFeatureState{State: "off"}
	}
	if !desc.Spec.CPU.NUMA {
		return nil
	}
	return numa(d, desc, pins.VCPUs)
}

// numa gives the guest a NUMA node for each of the node's on which its vCPUs are, with an equal
// part of the RAM, which is of that node.
func numa(d *libvirtxml.Domain, desc Description, vcpus []hostcpu.CPU) error {
	var nodes []int
	cells := map[int][]int{}
	for vcpu, cpu := range vcpus {
		if !slices.Contains(nodes, cpu.Node) {
			nodes = append(nodes, cpu.Node)
		}
		cells[cpu.Node] = append(cells[cpu.Node], vcpu)
	}
	slices.Sort(nodes)
	page := desc.Spec.HugePage
	if page == 0 {
		return fmt.Errorf("a guest with the node's NUMA nodes needs huge pages")
	}
	pages := desc.Spec.Memory / page
	if pages < int64(len(nodes)) {
		return fmt.Errorf("memory of %d huge pages is too little for %d NUMA nodes", pages, len(nodes))
	}
	d.CPU.Numa = &libvirtxml.DomainNuma{}
	d.NUMATune = &libvirtxml.DomainNUMATune{Memory: &libvirtxml.DomainNUMATuneMemory{Mode: "strict", Nodeset: hostcpu.Format(nodes)}}
	backing := d.MemoryBacking
	backing.MemoryHugePages.Hugepages = nil
	backing.MemoryAllocation = &libvirtxml.DomainMemoryAllocation{Mode: "immediate"}
	if desc.Spec.CPU.Realtime != "" {
		backing.MemoryNosharepages = &libvirtxml.DomainMemoryNosharepages{}
	}
	for i, node := range nodes {
		share := pages / int64(len(nodes))
		if int64(i) < pages%int64(len(nodes)) {
			share++
		}
		id := uint(i)
		d.CPU.Numa.Cell = append(d.CPU.Numa.Cell, libvirtxml.DomainCell{
			ID: &id, CPUs: hostcpu.Format(cells[node]), Memory: uint(share * page / mib), Unit: "MiB",
		})
		d.NUMATune.MemNodes = append(d.NUMATune.MemNodes, libvirtxml.DomainNUMATuneMemNode{CellID: id, Mode: "strict", Nodeset: strconv.Itoa(node)})
		backing.MemoryHugePages.Hugepages = append(backing.MemoryHugePages.Hugepages,
			libvirtxml.DomainMemoryHugepage{Size: uint(page / mib), Unit: "MiB", Nodeset: strconv.Itoa(i)})
	}
	return nil
}
