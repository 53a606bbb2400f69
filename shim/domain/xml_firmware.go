package domain

import (
	"fmt"
	"strings"

	"github.com/google/uuid"
	"libvirt.org/go/libvirtxml"

	"github.com/nodevirt/nodevirt/shim/domain/landlock"
	"github.com/nodevirt/nodevirt/shim/vmspec"
)

func boot(desc Description) *libvirtxml.DomainOS {
	os := &libvirtxml.DomainOS{
		Type: &libvirtxml.DomainOSType{Arch: "x86_64", Machine: desc.Spec.Machine, Type: "hvm"},
	}
	if k := desc.Spec.Firmware.Kernel; k != nil {
		os.Kernel, os.Initrd, os.Cmdline = desc.Kernel, desc.Initrd, k.Args
	}
	if len(sysinfo(desc.Spec)) > 0 {
		os.SMBios = &libvirtxml.DomainSMBios{Mode: "sysinfo"}
	}
	os.Loader, os.NVRam = loader(desc)
	return os
}

// loader returns the UEFI firmware and the VM's variables, which exist: libvirt would
// make them for another user. Nil is the BIOS.
func loader(desc Description) (*libvirtxml.DomainLoader, *libvirtxml.DomainNVRam) {
	if desc.UEFI == nil {
		return nil, nil
	}
	code := &libvirtxml.DomainLoader{Path: desc.UEFI.Code, Readonly: "yes", Type: "pflash"}
	if desc.UEFI.SMM {
		code.Secure = "yes"
	}
	return code, &libvirtxml.DomainNVRam{NVRam: desc.UEFIVariables}
}

// smm returns system management mode, which QEMU has by default where it can.
func smm(desc Description) *libvirtxml.DomainFeatureSMM {
	if !desc.Spec.SMM && (desc.UEFI == nil || !desc.UEFI.SMM) {
		return nil
	}
	return &libvirtxml.DomainFeatureSMM{State: "on"}
}

// tpms returns the TPM of the VM, as an interface that every guest's firmware knows.
func tpms(desc Description) []libvirtxml.DomainTPM {
	if !desc.Spec.TPM {
		return nil
	}
	return []libvirtxml.DomainTPM{{Model: "tpm-tis", Backend: &libvirtxml.DomainTPMBackend{
		External: &libvirtxml.DomainTPMBackendExternal{Source: &libvirtxml.DomainTPMBackendExternalSource{
			UNIX: &libvirtxml.DomainChardevSourceUNIX{Mode: "connect", Path: desc.TPMSocket},
		}},
	}}}
}

func sysinfo(s vmspec.Spec) []libvirtxml.DomainSysInfo {
	var text libvirtxml.DomainSysInfoSMBIOS
	if s.Firmware.Serial != "" {
		text.System = &libvirtxml.DomainSysInfoSystem{
			Entry: []libvirtxml.DomainSysInfoEntry{{Name: "serial", Value: s.Firmware.Serial}},
		}
	}
	if s.Chassis != (vmspec.Chassis{}) {
		text.Chassis = &libvirtxml.DomainSysInfoChassis{}
	}
	for _, e := range []libvirtxml.DomainSysInfoEntry{
		{Name: "manufacturer", Value: s.Chassis.Manufacturer}, {Name: "version", Value: s.Chassis.Version},
		{Name: "serial", Value: s.Chassis.Serial}, {Name: "asset", Value: s.Chassis.Asset}, {Name: "sku", Value: s.Chassis.SKU},
	} {
		if e.Value != "" {
			text.Chassis.Entry = append(text.Chassis.Entry, e)
		}
	}
	if text.System == nil && text.Chassis == nil {
		return nil
	}
	return []libvirtxml.DomainSysInfo{{SMBIOS: &text}}
}

// arguments returns what libvirt has no element for.
func arguments(desc Description) (*libvirtxml.DomainQEMUCommandline, error) {
	args, err := systemUUID(desc)
	if err != nil {
		return nil, err
	}
	for _, t := range desc.ACPITables { // libvirt 9.0 knows SLIC alone
		args = append(args, "-acpitable", "sig="+t.Signature+",file="+strings.ReplaceAll(t.Path, ",", ",,"))
	}
	files, err := filesOf(desc).Encode()
	if err != nil {
		return nil, err
	}
	line := &libvirtxml.DomainQEMUCommandline{
		Envs: []libvirtxml.DomainQEMUCommandlineEnv{{Name: landlock.Variable, Value: files}},
	}
	for _, a := range args {
		line.Args = append(line.Args, libvirtxml.DomainQEMUCommandlineArg{Value: a})
	}
	return line, nil
}

// systemUUID sets a system UUID that differs from the domain's. libvirt uses one UUID
// for both. But a pod's successor can have the same system UUID while the domain of
// its predecessor still exists. The argument consists of hexadecimal digits and
// dashes only.
func systemUUID(desc Description) ([]string, error) {
	if desc.Spec.Firmware.UUID == "" || desc.Spec.Firmware.UUID == desc.UUID {
		return nil, nil
	}
	id, err := uuid.Parse(desc.Spec.Firmware.UUID)
	if err != nil {
		return nil, fmt.Errorf("firmware UUID %q: %w", desc.Spec.Firmware.UUID, err)
	}
	return []string{"-uuid", id.String()}, nil
}
