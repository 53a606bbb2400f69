package domain

import "libvirt.org/go/libvirtxml"

// generation returns the VM generation ID: a guest that goes on from a checkpoint sees another one, and
// then renews its kernel's random numbers. It is as new as the domain. QEMU notifies the guest by ACPI, and
// writes the ID into the guest's memory, which must not be encrypted.
func generation(desc Description) *libvirtxml.DomainGenID {
	if isARM(desc) || desc.Spec.NoACPI || desc.Spec.LaunchSecurity.Encrypts() {
		return nil
	}
	return &libvirtxml.DomainGenID{Value: desc.UUID}
}
