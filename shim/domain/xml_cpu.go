package domain

import (
	"libvirt.org/go/libvirtxml"

	"github.com/nodevirt/nodevirt/shim/vmspec"
)

func cpu(desc Description) *libvirtxml.DomainCPU {
	c := cpuModel(desc.Accelerator, desc.Spec.CPU.Model)
	if isARM(desc) {
		c.Migratable = "" // libvirt has the attribute for x86 alone
	}
	c.Topology = &libvirtxml.DomainCPUTopology{
		Sockets: int(max(desc.Spec.CPU.MaxSockets, desc.Spec.CPU.Sockets)),
		Dies:    1,
		Cores:   int(desc.Spec.CPU.Cores),
		Threads: int(desc.Spec.CPU.Threads),
	}
	named := map[string]bool{}
	for _, f := range desc.Spec.CPU.Features {
		named[f.Name] = true
		c.Features = append(c.Features, libvirtxml.DomainCPUFeature{Policy: f.Policy, Name: f.Name})
	}
	// TCG walks the guest's page tables in software. A fifth level costs a guest
	// 7 % of its speed and 1 MiB, and is of no use below 64 TiB of RAM.
	if desc.Accelerator == TCG && c.Mode == "maximum" && !named["la57"] && !isARM(desc) {
		la57 := libvirtxml.DomainCPUFeature{Policy: "disable", Name: "la57"}
		c.Features = append(c.Features, la57)
	}
	return c
}

// cpuModel returns the CPU model of a spec. TCG can't pass the node's CPU through:
// with TCG "host-passthrough" means the same as no name, the best model that the
// accelerator offers.
func cpuModel(a Accelerator, name string) *libvirtxml.DomainCPU {
	passthrough := name == "" || name == "host-passthrough"
	switch {
	case passthrough && a == TCG, name == "maximum":
		return &libvirtxml.DomainCPU{Mode: "maximum", Check: "none"}
	case passthrough:
		return &libvirtxml.DomainCPU{Mode: "host-passthrough", Check: "none", Migratable: "on"}
	case name == "host-model":
		return &libvirtxml.DomainCPU{Mode: "host-model", Check: "partial"}
	default:
		return &libvirtxml.DomainCPU{
			Mode:  "custom",
			Match: "exact",
			Check: "partial",
			Model: &libvirtxml.DomainCPUModel{Fallback: "forbid", Value: name},
		}
	}
}

// capabilities returns QEMU's capabilities that libvirt must not use. To learn the features of a guest's
// CPU, libvirt reads some 400 of its properties one by one, which is most of the time of a start. Without
// this capability it reads two. libvirt needs the features to check the CPU and to describe it to another
// node. A CPU without a check needs neither.
func capabilities(c *libvirtxml.DomainCPU) *libvirtxml.DomainQEMUCapabilities {
	if c.Check != "none" {
		return nil
	}
	return &libvirtxml.DomainQEMUCapabilities{
		Del: []libvirtxml.DomainQEMUCapabilitiesEntry{{Name: "cpu-unavailable-features"}},
	}
}

// features returns the features of the board. The VMware port is off: it has no use
// here and adds to the attack surface.
func features(desc Description) *libvirtxml.DomainFeatureList {
	f := &libvirtxml.DomainFeatureList{
		APIC:   apic(desc),
		VMPort: &libvirtxml.DomainFeatureState{State: "off"},

		HyperV: hyperv(desc), PVSpinlock: pvSpinlock(desc), KVM: hiddenKVM(desc),
	}
	if isARM(desc) {
		f = &libvirtxml.DomainFeatureList{GIC: gic(desc.Accelerator)}
	}
	if !desc.Spec.NoACPI {
		f.ACPI = &libvirtxml.DomainFeature{}
	}
	f.SMM = smm(desc)
	if desc.Accelerator == TCG {
		f.TCG = &libvirtxml.DomainFeatureTCG{TBCache: &libvirtxml.DomainFeatureTCGTBCache{Unit: "MiB", Size: uint(vmspec.TranslatedCode(desc.Spec.Memory) / mib)}}
	}
	return f
}
