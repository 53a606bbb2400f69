package domain

import (
	"fmt"

	"github.com/google/uuid"
	"libvirt.org/go/libvirtxml"

	"github.com/nodevirt/nodevirt/shim/vmspec"
)

func boot(m Machine) *libvirtxml.DomainOS {
	os := &libvirtxml.DomainOS{
		Type: &libvirtxml.DomainOSType{Arch: "x86_64", Machine: m.Spec.Machine, Type: "hvm"},
	}
	if k := m.Spec.Firmware.Kernel; k != nil {
		os.Kernel, os.Initrd, os.Cmdline = m.Kernel, m.Initrd, k.Args
	}
	if m.Spec.Firmware.Serial != "" {
		os.SMBios = &libvirtxml.DomainSMBios{Mode: "sysinfo"}
	}
	return os
}

func sysinfo(f vmspec.Firmware) []libvirtxml.DomainSysInfo {
	if f.Serial == "" {
		return nil
	}
	return []libvirtxml.DomainSysInfo{{SMBIOS: &libvirtxml.DomainSysInfoSMBIOS{
		System: &libvirtxml.DomainSysInfoSystem{
			Entry: []libvirtxml.DomainSysInfoEntry{{Name: "serial", Value: f.Serial}},
		},
	}}}
}

// systemUUID sets a system UUID that differs from the domain's. libvirt uses one UUID
// for both. But a pod's successor can have the same system UUID while the domain of
// its predecessor still exists. The argument consists of hexadecimal digits and
// dashes only.
func systemUUID(m Machine) (*libvirtxml.DomainQEMUCommandline, error) {
	if m.Spec.Firmware.UUID == "" || m.Spec.Firmware.UUID == m.UUID {
		return nil, nil
	}
	id, err := uuid.Parse(m.Spec.Firmware.UUID)
	if err != nil {
		return nil, fmt.Errorf("firmware UUID %q: %w", m.Spec.Firmware.UUID, err)
	}
	return &libvirtxml.DomainQEMUCommandline{Args: []libvirtxml.DomainQEMUCommandlineArg{
		{Value: "-uuid"}, {Value: id.String()},
	}}, nil
}
