package domain

import (
	"fmt"

	"libvirt.org/go/libvirtxml"
)

const mib = 1 << 20

// XML returns m as libvirt's domain XML. Untrusted text only passes through an XML
// encoder and never becomes an element or a QEMU option.
func XML(m Machine) (string, error) {
	d, err := domainOf(m)
	if err != nil {
		return "", fmt.Errorf("describe domain %s: %w", m.Name, err)
	}
	text, err := d.Marshal()
	if err != nil {
		return "", fmt.Errorf("encode domain %s: %w", m.Name, err)
	}
	return text, nil
}

func domainOf(m Machine) (*libvirtxml.Domain, error) {
	kind := map[Accelerator]string{KVM: "kvm", TCG: "qemu"}[m.Accelerator]
	if kind == "" {
		return nil, fmt.Errorf("accelerator %q is neither %s nor %s", m.Accelerator, KVM, TCG)
	}
	if m.Spec.Memory < mib {
		return nil, fmt.Errorf("memory of %d bytes is less than 1 MiB", m.Spec.Memory)
	}
	meta, err := metadata(m)
	if err != nil {
		return nil, err
	}
	devices, err := devices(m)
	if err != nil {
		return nil, err
	}
	smbios, err := systemUUID(m)
	if err != nil {
		return nil, err
	}
	d := &libvirtxml.Domain{
		Type:     kind,
		Name:     m.Name,
		UUID:     m.UUID,
		Metadata: meta,
		Memory:   &libvirtxml.DomainMemory{Value: uint(m.Spec.Memory / mib), Unit: "MiB"},
		VCPU:     &libvirtxml.DomainVCPU{Placement: "static", Value: vcpus(m.Spec.CPU)},
		SysInfo:  sysinfo(m.Spec.Firmware),
		OS:       boot(m),
		Features: features(m),
		CPU:      cpu(m),
		Clock:    clock(),
		PM: &libvirtxml.DomainPM{
			SuspendToMem:  &libvirtxml.DomainPMPolicy{Enabled: "no"},
			SuspendToDisk: &libvirtxml.DomainPMPolicy{Enabled: "no"},
		},
		OnPoweroff:      "destroy",
		OnReboot:        "restart",
		OnCrash:         "destroy",
		Devices:         devices,
		SecLabel:        []libvirtxml.DomainSecLabel{owner(m)},
		QEMUCommandline: smbios,
		QEMUOverride:    agentOverride(),
	}
	d.QEMUCapabilities = capabilities(d.CPU)
	return d, nil
}

// owner makes QEMU run as the VM's own user. libvirt must not relabel files: they
// are passed as descriptors, or belong to that user already. The plus signs keep
// libvirt from looking up the numbers as names.
func owner(m Machine) libvirtxml.DomainSecLabel {
	return libvirtxml.DomainSecLabel{
		Type:    "static",
		Model:   "dac",
		Relabel: "no",
		Label:   fmt.Sprintf("+%d:+%d", m.UID, m.GID),
	}
}
