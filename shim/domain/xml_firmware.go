package domain

import (
	"fmt"

	"github.com/google/uuid"
	"libvirt.org/go/libvirtxml"

	"github.com/nodevirt/nodevirt/shim/vmspec"
)

func boot(desc Description) *libvirtxml.DomainOS {
	os := &libvirtxml.DomainOS{
		Type: &libvirtxml.DomainOSType{Arch: "x86_64", Machine: desc.Spec.Machine, Type: "hvm"},
	}
	if k := desc.Spec.Firmware.Kernel; k != nil {
		os.Kernel, os.Initrd, os.Cmdline = desc.Kernel, desc.Initrd, k.Args
	}
	if desc.Spec.Firmware.Serial != "" {
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
func systemUUID(desc Description) (*libvirtxml.DomainQEMUCommandline, error) {
	if desc.Spec.Firmware.UUID == "" || desc.Spec.Firmware.UUID == desc.UUID {
		return nil, nil
	}
	id, err := uuid.Parse(desc.Spec.Firmware.UUID)
	if err != nil {
		return nil, fmt.Errorf("firmware UUID %q: %w", desc.Spec.Firmware.UUID, err)
	}
	return &libvirtxml.DomainQEMUCommandline{Args: []libvirtxml.DomainQEMUCommandlineArg{
		{Value: "-uuid"}, {Value: id.String()},
	}}, nil
}
