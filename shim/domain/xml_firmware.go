package domain

import (
	"fmt"
	"path/filepath"
	"slices"
	"strings"

	"github.com/google/uuid"
	"libvirt.org/go/libvirtxml"

	"github.com/nodevirt/nodevirt/shim/domain/landlock"
	"github.com/nodevirt/nodevirt/shim/domain/ramfd"
	"github.com/nodevirt/nodevirt/shim/domain/tapfd"
	"github.com/nodevirt/nodevirt/shim/vmspec"
)

func boot(desc Description) *libvirtxml.DomainOS {
	os := &libvirtxml.DomainOS{
		Type: &libvirtxml.DomainOSType{Arch: archOf(desc.Spec.Arch()), Machine: desc.Spec.Machine, Type: "hvm"},
	}
	if k := desc.Spec.Firmware.Kernel; k != nil {
		os.Kernel, os.Initrd, os.Cmdline = desc.Kernel, desc.Initrd, k.Args
	}
	if desc.Spec.Firmware.OnSerial {
		os.BIOS = &libvirtxml.DomainBIOS{UseSerial: "yes"}
	}
	if smbios(desc.Spec) != nil {
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
	if desc.UEFI.Variables == "" {
		return &libvirtxml.DomainLoader{Path: desc.UEFI.Code, Readonly: "yes", Type: "rom"}, nil
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

// ignition is where QEMU gives a guest the configuration for Ignition.
const ignition = "opt/com.coreos/config"

func sysinfo(desc Description) []libvirtxml.DomainSysInfo {
	var all []libvirtxml.DomainSysInfo
	if text := smbios(desc.Spec); text != nil {
		all = append(all, libvirtxml.DomainSysInfo{SMBIOS: text})
	}
	if desc.Ignition != "" {
		all = append(all, libvirtxml.DomainSysInfo{FWCfg: &libvirtxml.DomainSysInfoFWCfg{
			Entry: []libvirtxml.DomainSysInfoEntry{{Name: ignition, File: desc.Ignition}},
		}})
	}
	return all
}

// smbios returns the text of SMBIOS that is not QEMU's; nil for none.
func smbios(s vmspec.Spec) *libvirtxml.DomainSysInfoSMBIOS {
	var text libvirtxml.DomainSysInfoSMBIOS
	board := vmspec.BoardText{}
	if s.Firmware.Board != nil {
		board = *s.Firmware.Board
	}
	if all := entries("manufacturer", board.Manufacturer, "product", board.Product, "serial", s.Firmware.Serial,
		"family", board.Family); len(all) > 0 {
		text.System = &libvirtxml.DomainSysInfoSystem{Entry: all}
	}
	if all := entries("manufacturer", s.Chassis.Manufacturer, "version", s.Chassis.Version, "serial", s.Chassis.Serial,
		"asset", s.Chassis.Asset, "sku", s.Chassis.SKU); len(all) > 0 {
		text.Chassis = &libvirtxml.DomainSysInfoChassis{Entry: all}
	}
	if s.Hooks != nil { // scripts of KubeVirt's users fill this element
		text.BaseBoard = []libvirtxml.DomainSysInfoBaseBoard{{}}
	}
	if text.System == nil && text.Chassis == nil && text.BaseBoard == nil {
		return nil
	}
	return &text
}

// entries returns those of names and values that have a value.
func entries(namesAndValues ...string) []libvirtxml.DomainSysInfoEntry {
	var all []libvirtxml.DomainSysInfoEntry
	for pair := range slices.Chunk(namesAndValues, 2) {
		if pair[1] != "" {
			all = append(all, libvirtxml.DomainSysInfoEntry{Name: pair[0], Value: pair[1]})
		}
	}
	return all
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
	if desc.RAMSocket != "" {
		line.Envs = append(line.Envs, libvirtxml.DomainQEMUCommandlineEnv{Name: ramfd.Variable, Value: desc.RAMSocket})
	}
	if desc.TapSocket != "" {
		if filepath.Base(desc.Emulator) != landlock.Name {
			return nil, fmt.Errorf("%w: a network card is a tap of a network binding plug-in, which only %s can give to QEMU: "+
				"have the node's administrator set vm.landlock in the shim's config to auto or require", ErrUnsupported, landlock.Name)
		}
		line.Envs = append(line.Envs, libvirtxml.DomainQEMUCommandlineEnv{Name: tapfd.Variable, Value: desc.TapSocket})
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
