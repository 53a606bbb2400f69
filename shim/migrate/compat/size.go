package compat

import (
	"fmt"

	"libvirt.org/go/libvirtxml"
)

// Size is how many vCPUs and how much RAM a running guest has got, where its VM has room for more.
// The target's pod says how much that may be at most.
type Size struct {
	// Online is the number of vCPUs. VCPUs are all that there is room for, in their order; none if
	// the guest has those of its start.
	Online uint   `json:"online,omitempty"`
	VCPUs  []VCPU `json:"vcpus,omitempty"`
	// Boot is the RAM of the start, in KiB; 0 for a VM without room for memory. Modules are the rest.
	Boot    uint64   `json:"boot,omitempty"`
	Modules []Module `json:"modules,omitempty"`
}

// VCPU is one vCPU, or room for it.
type VCPU struct {
	Online bool `json:"online,omitempty"`
	// Fixed says that the guest has had it since its start.
	Fixed bool `json:"fixed,omitempty"`
	// Order is the place in the order in which they came; 0 if it is not online.
	Order uint `json:"order,omitempty"`
}

// Module is a memory module.
type Module struct {
	Size uint64 `json:"size"` // KiB
	Slot uint   `json:"slot"`
	Base uint64 `json:"base"` // the guest's address
}

// maxModules bounds the memory modules, maxKiB the size of one, and their addresses in KiB.
const (
	maxModules = 256
	maxKiB     = 1 << 36
)

func sizeOf(d libvirtxml.Domain) (*Size, error) {
	var s Size
	if v := d.VCPU; v != nil && (v.Current > 0 || d.VCPUs != nil) {
		s.Online = v.Current
		if s.Online == 0 {
			s.Online = v.Value
		}
	}
	if d.VCPUs != nil {
		for _, v := range d.VCPUs.VCPU {
			s.VCPUs = append(s.VCPUs, VCPU{Online: v.Enabled == "yes", Fixed: v.Hotpluggable == "no", Order: value(v.Order)})
		}
	}
	if d.MaximumMemory != nil && d.CPU.Numa != nil && len(d.CPU.Numa.Cell) == 1 {
		cells, err := cellsOf(d.CPU)
		if err != nil {
			return nil, err
		}
		s.Boot = cells[0].Memory
	}
	for _, m := range d.Devices.Memorydevs {
		if m.Model != "dimm" || m.Target == nil || m.Target.Size == nil || m.Target.Size.Unit != "KiB" ||
			m.Address == nil || m.Address.DIMM == nil || m.Address.DIMM.Base == nil {
			return nil, fmt.Errorf("%w: memory device %q", ErrShape, m.Model)
		}
		s.Modules = append(s.Modules, Module{Size: uint64(m.Target.Size.Value), Slot: value(m.Address.DIMM.Slot), Base: *m.Address.DIMM.Base})
	}
	if s.Online == 0 && s.Boot == 0 {
		return nil, nil
	}
	return &s, nil
}

func (s *Size) check() error {
	if s == nil {
		return nil
	}
	if len(s.VCPUs) > maxDevices || len(s.Modules) > maxModules || s.Boot > maxKiB || s.Boot == 0 && len(s.Modules) > 0 {
		return fmt.Errorf("%w: %d vCPUs, %d KiB of RAM and %d memory modules", ErrShape, len(s.VCPUs), s.Boot, len(s.Modules))
	}
	online, orders := uint(0), map[uint]bool{}
	for i, v := range s.VCPUs {
		if v.Online != (v.Order > 0) || v.Order > uint(len(s.VCPUs)) || v.Order > 0 && orders[v.Order] {
			return fmt.Errorf("%w: vCPU %d: %+v", ErrShape, i, v)
		}
		if v.Online {
			online, orders[v.Order] = online+1, true
		}
	}
	if len(s.VCPUs) > 0 && online != s.Online {
		return fmt.Errorf("%w: %d vCPUs, of which %d are online", ErrShape, s.Online, online)
	}
	slots := map[uint]bool{}
	for _, m := range s.Modules {
		if m.Size == 0 || m.Size > maxKiB || m.Base>>10 > maxKiB || m.Slot >= maxModules || slots[m.Slot] {
			return fmt.Errorf("%w: memory module %+v", ErrShape, m)
		}
		slots[m.Slot] = true
	}
	return nil
}

// applySize gives the target the source's vCPUs and RAM, which must not be more than its own.
func applySize(d *libvirtxml.Domain, s *Size) error {
	if s == nil {
		return nil
	}
	if err := applyVCPUs(d, s); err != nil || s.Boot == 0 {
		return err
	}
	cells, err := cellsOf(d.CPU)
	if err != nil {
		return err
	}
	if d.MaximumMemory == nil || len(cells) != 1 {
		return fmt.Errorf("%w: the guest has room for memory, and the target's domain has none", ErrShape)
	}
	total := s.Boot
	for _, m := range s.Modules {
		total += m.Size
	}
	if total > cells[0].Memory {
		return fmt.Errorf("%w: the guest has %d KiB of RAM, and the target's pod is for %d: a migration needs a VM whose spec has what "+
			"the guest was given", ErrShape, total, cells[0].Memory)
	}
	d.CPU.Numa.Cell[0].Memory, d.CPU.Numa.Cell[0].Unit = uint(s.Boot), "KiB"
	d.Memory = &libvirtxml.DomainMemory{Value: uint(total), Unit: "KiB"}
	for _, m := range s.Modules {
		d.Devices.Memorydevs = append(d.Devices.Memorydevs, libvirtxml.DomainMemorydev{
			Model: "dimm",
			Target: &libvirtxml.DomainMemorydevTarget{
				Size: &libvirtxml.DomainMemorydevTargetSize{Value: uint(m.Size), Unit: "KiB"},
				Node: &libvirtxml.DomainMemorydevTargetNode{Value: 0},
			},
			Address: &libvirtxml.DomainAddress{DIMM: &libvirtxml.DomainAddressDIMM{Slot: new(m.Slot), Base: new(m.Base)}},
		})
	}
	return nil
}

func applyVCPUs(d *libvirtxml.Domain, s *Size) error {
	if s.Online == 0 {
		return nil
	}
	if d.VCPU == nil || d.VCPU.Current == 0 {
		return fmt.Errorf("%w: the guest has room for vCPUs, and the target's domain has none", ErrShape)
	}
	if len(s.VCPUs) > 0 && uint(len(s.VCPUs)) != d.VCPU.Value {
		return fmt.Errorf("%w: the guest has room for %d vCPUs, and the target's domain for %d", ErrShape, len(s.VCPUs), d.VCPU.Value)
	}
	if s.Online > d.VCPU.Current {
		return fmt.Errorf("%w: the guest has %d vCPUs, and the target's pod is for %d: a migration needs a VM whose spec has what "+
			"the guest was given", ErrShape, s.Online, d.VCPU.Current)
	}
	d.VCPU.Current = s.Online
	if len(s.VCPUs) == 0 {
		return nil
	}
	d.VCPUs = &libvirtxml.DomainVCPUs{}
	word := map[bool]string{true: "yes", false: "no"}
	for i, v := range s.VCPUs {
		one := libvirtxml.DomainVCPUsVCPU{Id: new(uint(i)), Enabled: word[v.Online], Hotpluggable: word[!v.Fixed]}
		if v.Order > 0 {
			one.Order = new(v.Order)
		}
		d.VCPUs.VCPU = append(d.VCPUs.VCPU, one)
	}
	return nil
}
