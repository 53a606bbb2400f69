package vmspec

import (
	"strings"

	"k8s.io/apimachinery/pkg/util/validation/field"
	kubevirt "kubevirt.io/api/core/v1"

	"github.com/nodevirt/nodevirt/shim/fields"
)

func firmwareRows() []fields.Row {
	return []fields.Row{
		fields.At("domain.firmware.uuid", fields.Match(hexUUID, 36)),
		fields.At("domain.firmware.serial", smbiosText),
		fields.At("domain.firmware.acpi.slicNameRef", fields.Label),
		fields.At("domain.firmware.acpi.msdmNameRef", fields.Label),
		fields.At("domain.firmware.bootloader.bios.useSerial", fields.Boolean),
		fields.At("domain.firmware.bootloader.efi.secureBoot", fields.Boolean),
		fields.At("domain.firmware.bootloader.efi.persistent", fields.Boolean),
		fields.At("domain.firmware.kernelBoot.kernelArgs", kernelArgs),
		fields.At("domain.firmware.kernelBoot.container.image", fields.Text(1024)),
		fields.At("domain.firmware.kernelBoot.container.kernelPath", imagePath),
		fields.At("domain.firmware.kernelBoot.container.initrdPath", imagePath),
		fields.At("domain.chassis.manufacturer", smbiosText),
		fields.At("domain.chassis.version", smbiosText),
		fields.At("domain.chassis.serial", smbiosText),
		fields.At("domain.chassis.asset", smbiosText),
		fields.At("domain.chassis.sku", smbiosText),
	}
}

// readFirmware reads the boot loader, the kernel, and what identifies the VM.
func readFirmware(
	at *field.Path, vmi *kubevirt.VirtualMachineInstanceSpec, r request,
) (Firmware, field.ErrorList) {
	f := vmi.Domain.Firmware
	if f == nil {
		f = &kubevirt.Firmware{}
	}
	arm := vmi.Architecture == ARM64
	result := Firmware{UUID: strings.ToLower(string(f.UUID)), Serial: f.Serial}
	var problems field.ErrorList
	if b := f.Bootloader; b != nil && b.BIOS != nil && isOr(b.BIOS.UseSerial, false) {
		result.OnSerial = true
		if !isOr(vmi.Domain.Devices.AutoattachSerialConsole, true) {
			problems = append(problems, refused(at.Child("bootloader", "bios", "useSerial"), "requires autoattachSerialConsole"))
		}
	}
	if b := f.Bootloader; b != nil && b.EFI != nil {
		result.UEFI = &UEFI{SecureBoot: isOr(b.EFI.SecureBoot, !arm)}
		if b.BIOS != nil {
			problems = append(problems, refused(at.Child("bootloader"), "has both EFI and BIOS configured, but they are mutually exclusive"))
		}
	}
	if arm && result.UEFI == nil { // it has no BIOS
		result.UEFI = &UEFI{}
	}
	kernel, p := readKernel(at.Child("kernelBoot"), f.KernelBoot, r)
	result.Kernel = kernel
	return result, append(problems, p...)
}

// kubevirtBoard is KubeVirt's default, by which guests and their tools know where they run.
func kubevirtBoard() *BoardText {
	return &BoardText{Manufacturer: "KubeVirt", Product: "None", Family: "KubeVirt"}
}

// acpiTables reads the ACPI tables that volumes with Secrets hold. As with KubeVirt such
// a volume is no disk, unless a disk has its name.
func (v *volumes) acpiTables(at *field.Path, f *kubevirt.Firmware) ([]ACPITable, field.ErrorList) {
	if f == nil || f.ACPI == nil {
		return nil, nil
	}
	given := f.ACPI
	if given.SlicNameRef == "" && given.MsdmNameRef == "" {
		return nil, field.ErrorList{refused(at, "ACPI was set but no SLIC nor MSDM volume reference was set")}
	}
	var all []ACPITable
	var problems field.ErrorList
	for _, ref := range []struct{ field, volume, signature string }{
		{"slicNameRef", given.SlicNameRef, "SLIC"}, {"msdmNameRef", given.MsdmNameRef, "MSDM"},
	} {
		if ref.volume == "" {
			continue
		}
		switch volume := v.find(ref.volume); {
		case volume == nil:
			problems = append(problems, invalid(at.Child(ref.field), ref.volume, "does not have a matching Volume"))
		case volume.Source != SourceSecret:
			problems = append(problems, invalid(at.Child(ref.field), ref.volume, "refers to Volume of unsupported type; use a secret"))
		default:
			volume.table = true
			all = append(all, ACPITable{Signature: ref.signature, Secret: MountedSecret{Name: ref.volume, Folder: volume.Host}})
		}
	}
	return all, problems
}

// checkFirmware returns the combinations that QEMU has no machine for.
func (s *Spec) checkFirmware(domain *field.Path) field.ErrorList {
	var problems field.ErrorList
	efi := s.Firmware.UEFI
	if efi != nil && efi.SecureBoot && !s.SMM && !s.LaunchSecurity.Encrypts() {
		problems = append(problems, refused(domain, "has EFI SecureBoot enabled. SecureBoot requires SMM, which is currently disabled; "+
			"enable features.smm, or set secureBoot to false"))
	}
	if s.SMM && !s.PCIExpress() {
		problems = append(problems, invalid(domain.Child("machine", "type"), s.Machine, "features.smm requires a machine of type q35"))
	}
	if efi != nil && s.NoACPI {
		problems = append(problems, refused(domain.Child("features", "acpi"), "efi requires ACPI; enable it"))
	}
	return problems
}

func chassis(given *kubevirt.Chassis) Chassis {
	if given == nil {
		return Chassis{}
	}
	return Chassis{
		Manufacturer: given.Manufacturer, Version: given.Version, Serial: given.Serial, Asset: given.Asset, SKU: given.Sku,
	}
}
