package instancetype

import (
	kubevirt "kubevirt.io/api/core/v1"
	api "kubevirt.io/api/instancetype/v1beta1"
)

// preferFirmware chooses the firmware of a VM that names none.
func preferFirmware(p *api.FirmwarePreferences, domain *kubevirt.DomainSpec) {
	is := func(flag *bool) bool { return flag != nil && *flag }
	defer func() { // for a BIOS that the VM names too
		if f := domain.Firmware; f != nil && f.Bootloader != nil && f.Bootloader.BIOS != nil {
			setNil(&f.Bootloader.BIOS.UseSerial, p.PreferredUseBiosSerial)
		}
	}()
	efi := p.PreferredEfi
	if efi == nil && is(p.DeprecatedPreferredUseEfi) {
		efi = &kubevirt.EFI{SecureBoot: p.DeprecatedPreferredUseSecureBoot}
	}
	if efi == nil && !is(p.PreferredUseBios) {
		return
	}
	if domain.Firmware == nil {
		domain.Firmware = new(kubevirt.Firmware)
	}
	if domain.Firmware.Bootloader == nil {
		domain.Firmware.Bootloader = new(kubevirt.Bootloader)
	}
	switch b := domain.Firmware.Bootloader; {
	case b.EFI != nil || b.BIOS != nil:
	case efi != nil:
		b.EFI = efi.DeepCopy()
	default:
		b.BIOS = new(kubevirt.BIOS)
	}
}
