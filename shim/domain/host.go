package domain

import (
	"context"
	"encoding/xml"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"strings"
	"sync"

	"libvirt.org/go/libvirt"
	"libvirt.org/go/libvirtxml"

	"github.com/nodevirt/nodevirt/shim/vmspec"
)

// Host reads what libvirt offers the node's VMs.
type Host struct {
	conn *Connection

	mu sync.Mutex // guards all below
	// startable are the CPU models that start, of those in the capabilities of domains.
	startable    []string
	capabilities string
}

// Capabilities are what the node can give a VM. The names are libvirt's.
type Capabilities struct {
	// Architectures are those of guests, by Go's names.
	Architectures []string
	// Machines are types of boards of these, aliases such as q35 included.
	Machines []string
	// Deprecated are those of them that a later QEMU will not have.
	Deprecated []string
	// Models are the CPU models that a guest can have here. KnownModels are all that
	// this libvirt knows.
	Models, KnownModels []string
	// HostModel is the CPU model that host-model stands for, with HostFeatures beside
	// it; empty without host-model. Vendor is the vendor of that CPU.
	HostModel, Vendor string
	HostFeatures      []string
	// Features are the CPU features that a guest can have here.
	Features []string
	// Hyperv are the enlightenments.
	Hyperv []string
	// TSC is the frequency in Hz of the time stamp counter, 0 if it is not known, and
	// TSCScaling says whether a guest can have another one.
	TSC        uint64
	TSCScaling bool
	// Encryption is how the node can encrypt a guest's memory.
	Encryption Encryption
}

// Encryption is how a node can encrypt a guest's memory.
type Encryption struct {
	// SEV, SEVES, SNP and TDX are what processor, firmware, kernel, QEMU and libvirt can do.
	SEV, SEVES, SNP, TDX bool
	// CBitPos is the bit of an address that marks encrypted memory of AMD's ways, and ReducedPhysBits is
	// the number of bits that addresses lose.
	CBitPos, ReducedPhysBits uint
}

// Offers returns nil if the node can encrypt a guest's memory so, else [ErrUnsupported].
func (e Encryption) Offers(l vmspec.LaunchSecurity) error {
	name, can := "SEV", e.SEV
	switch {
	case l.Encryption == vmspec.EncryptionSNP:
		name, can = "SEV-SNP", e.SNP
	case l.Encryption == vmspec.EncryptionTDX:
		name, can = "TDX", e.TDX
	case l.EncryptedState:
		name, can = "SEV-ES", e.SEVES
	}
	if can {
		return nil
	}
	return fmt.Errorf("%w: spec.domain.launchSecurity: virsh domcapabilities lists no %s; "+
		"enable it in the node's firmware and kernel, or run the VM on another node", ErrUnsupported, name)
}

// Capabilities asks libvirt what VMs can have with an accelerator and an emulator. Foreign are the other
// architectures whose guests the node can run, if libvirt can.
func (h *Host) Capabilities(ctx context.Context, a Accelerator, emulator string, foreign []string) (Capabilities, error) {
	kind, arch, machine := kinds()[a], archOf(runtime.GOARCH), vmspec.MachineOf(runtime.GOARCH)
	return call(ctx, h.conn, "read the capabilities of", "libvirt", func(c *libvirt.Connect) (Capabilities, error) {
		var texts capabilityXML
		var err error
		if texts.host, err = c.GetCapabilities(); err != nil {
			return Capabilities{}, err
		}
		if texts.domain, err = c.GetDomainCapabilities(emulator, arch, machine, kind, 0); err != nil {
			return Capabilities{}, err
		}
		definition, err := hostModelCPU(texts.domain)
		if err != nil {
			return Capabilities{}, err
		}
		if definition != "" {
			texts.cpu, err = c.BaselineHypervisorCPU(emulator, arch, machine, kind, []string{definition},
				libvirt.CONNECT_BASELINE_CPU_EXPAND_FEATURES)
			if err != nil {
				return Capabilities{}, err
			}
		}
		caps, err := texts.read(a, foreign)
		if err != nil {
			return Capabilities{}, err
		}
		caps.Models = h.starts(c, texts.domain, caps.Models, func(cpu string) (libvirt.CPUCompareResult, error) {
			return c.CompareHypervisorCPU(emulator, arch, machine, kind, cpu, 0)
		})
		return caps, nil
	})
}

// starts returns those of the models that libvirt starts: QEMU may call one usable that has a feature more for libvirt.
// It compares them again only when the capabilities of domains have changed, since a node is looked at all the time.
func (h *Host) starts(c *libvirt.Connect, capabilities string, models []string,
	compare func(cpu string) (libvirt.CPUCompareResult, error),
) []string {
	h.mu.Lock()
	defer h.mu.Unlock()
	if capabilities == h.capabilities {
		return slices.Clone(h.startable)
	}
	models = slices.DeleteFunc(models, func(name string) bool {
		cpu := libvirtxml.DomainCPU{Match: "exact", Model: &libvirtxml.DomainCPUModel{Fallback: "forbid", Value: name}}
		text, err := cpu.Marshal()
		if err != nil {
			return true
		}
		result, err := compare(text)
		return err == nil && result == libvirt.CPU_COMPARE_INCOMPATIBLE // libvirt compares not on each architecture
	})
	if isAlive(c) {
		h.startable, h.capabilities = slices.Clone(models), capabilities
	}
	return models
}

// Encryption asks libvirt how the node can encrypt a guest's memory.
func (h *Host) Encryption(ctx context.Context, a Accelerator, emulator string) (Encryption, error) {
	arch, machine := archOf(runtime.GOARCH), vmspec.MachineOf(runtime.GOARCH)
	text, err := call(ctx, h.conn, "read the capabilities of", "libvirt", func(c *libvirt.Connect) (string, error) {
		return c.GetDomainCapabilities(emulator, arch, machine, kinds()[a], 0)
	})
	if err != nil {
		return Encryption{}, err
	}
	var domain libvirtxml.DomainCaps
	if err := xml.Unmarshal([]byte(text), &domain); err != nil {
		return Encryption{}, fmt.Errorf("decode the capabilities of domains: %w", err)
	}
	return encryption(a, domain.Features), nil
}

// encryption reads what libvirt lists: libvirt 9.0 knows SEV alone, later ones the other ways.
func encryption(a Accelerator, f *libvirtxml.DomainCapsFeatures) Encryption {
	const yes = "yes"
	var e Encryption
	if a != KVM || f == nil {
		return e
	}
	var listed []string
	if l := f.LaunchSecurity; l != nil && l.Supported == yes {
		for _, enum := range l.Enums {
			if enum.Name == "sectype" {
				listed = append(listed, enum.Values...)
			}
		}
	}
	if sev := f.SEV; sev != nil && sev.Supported == yes {
		e.SEV, e.SEVES = true, sev.MaxESGuests > 0
		e.SNP = e.SEVES && slices.Contains(listed, string(vmspec.EncryptionSNP))
		e.CBitPos, e.ReducedPhysBits = sev.CBitPos, sev.ReducedPhysBits
	}
	e.TDX = f.TDX != nil && f.TDX.Supported == yes || slices.Contains(listed, string(vmspec.EncryptionTDX))
	return e
}

// capabilityXML is what libvirt describes: the node, domains on it, and the CPU of
// host-model with all of its features, if there is one.
type capabilityXML struct{ host, domain, cpu string }

func (t capabilityXML) read(a Accelerator, foreign []string) (Capabilities, error) {
	var caps Capabilities
	var host libvirtxml.Caps
	var domain libvirtxml.DomainCaps
	var cpu libvirtxml.DomainCPU
	err := errors.Join(xml.Unmarshal([]byte(t.host), &host), xml.Unmarshal([]byte(t.domain), &domain))
	if t.cpu != "" {
		err = errors.Join(err, xml.Unmarshal([]byte(t.cpu), &cpu))
	}
	if err != nil {
		return caps, fmt.Errorf("decode the capabilities of libvirt: %w", err)
	}
	for _, guest := range host.Guests {
		if guest.OSType != "hvm" {
			continue
		}
		switch name := goArch(guest.Arch.Name); {
		case name == runtime.GOARCH:
			caps.machines(guest.Arch, kinds()[a])
		case slices.Contains(foreign, name):
			caps.machines(guest.Arch, kinds()[TCG])
		default:
			continue
		}
		caps.Architectures = append(caps.Architectures, goArch(guest.Arch.Name))
	}
	if counter := host.Host.CPU.Counter; a == KVM && counter != nil && counter.Name == "tsc" {
		caps.TSC, caps.TSCScaling = uint64(counter.Frequency), counter.Scaling == "yes"
	}
	caps.Encryption = encryption(a, domain.Features)
	caps.models(domain.CPU)
	for _, f := range cpu.Features {
		if f.Policy == "require" {
			caps.Features = append(caps.Features, f.Name)
		}
	}
	if f := domain.Features; a == KVM && f != nil && f.HyperV != nil && f.HyperV.Supported == "yes" {
		for _, e := range f.HyperV.Enums {
			if e.Name == "features" {
				caps.Hyperv = append(caps.Hyperv, e.Values...)
			}
		}
	}
	for _, names := range []*[]string{&caps.Architectures, &caps.Machines, &caps.Deprecated, &caps.Models, &caps.KnownModels, &caps.HostFeatures, &caps.Features, &caps.Hyperv} {
		slices.Sort(*names)
		*names = slices.Compact(*names)
	}
	return caps, nil
}

// machines reads the types of boards of an architecture. libvirt lists them with a kind
// of domain only where they differ from those of other kinds.
func (c *Capabilities) machines(a libvirtxml.CapsGuestArch, kind string) {
	all := a.Machines
	for _, d := range a.Domains {
		if d.Type == kind && len(d.Machines) > 0 {
			all = d.Machines
		}
	}
	for _, m := range all {
		c.Machines = append(c.Machines, m.Name)
		if m.Deprecated == "yes" {
			c.Deprecated = append(c.Deprecated, m.Name)
		}
	}
}

func (c *Capabilities) models(cpu *libvirtxml.DomainCapsCPU) {
	if cpu == nil {
		return
	}
	for _, mode := range cpu.Modes {
		switch {
		case mode.Supported != "yes":
		case mode.Name == "host-model" && len(mode.Models) > 0:
			c.HostModel, c.Vendor = strings.TrimSpace(mode.Models[0].Name), mode.Vendor
			for _, f := range mode.Features {
				if f.Policy == "require" {
					c.HostFeatures = append(c.HostFeatures, f.Name)
				}
			}
		case mode.Name == "custom":
			for _, m := range mode.Models {
				c.KnownModels = append(c.KnownModels, m.Name)
				if m.Usable == "yes" {
					c.Models = append(c.Models, m.Name)
				}
			}
		}
	}
}

// hostModelCPU returns the CPU that host-model stands for as a definition of a CPU; empty
// if there is none.
func hostModelCPU(domain string) (string, error) {
	var caps libvirtxml.DomainCaps
	if err := xml.Unmarshal([]byte(domain), &caps); err != nil {
		return "", fmt.Errorf("decode the capabilities of domains: %w", err)
	}
	if caps.CPU == nil {
		return "", nil
	}
	for _, mode := range caps.CPU.Modes {
		if mode.Name != "host-model" || mode.Supported != "yes" || len(mode.Models) == 0 {
			continue
		}
		cpu := libvirtxml.DomainCPU{
			Match: "exact", Model: &libvirtxml.DomainCPUModel{Fallback: mode.Models[0].Fallback, Value: mode.Models[0].Name}, Vendor: mode.Vendor,
		}
		for _, f := range mode.Features {
			cpu.Features = append(cpu.Features, libvirtxml.DomainCPUFeature(f))
		}
		return cpu.Marshal()
	}
	return "", nil
}
