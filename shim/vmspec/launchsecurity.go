package vmspec

import (
	"slices"

	"k8s.io/apimachinery/pkg/util/validation/field"
	kubevirt "kubevirt.io/api/core/v1"

	"github.com/nodevirt/nodevirt/shim/fields"
)

// Encryption is libvirt's name of a way in which the processor hides a guest's memory from the node.
type Encryption string

// The ways: those of AMD, of which SEV covers SEV-ES too, and that of Intel.
const (
	EncryptionSEV Encryption = "sev"
	EncryptionSNP Encryption = "sev-snp"
	EncryptionTDX Encryption = "tdx"
)

// LaunchSecurity encrypts a guest's memory.
type LaunchSecurity struct {
	Encryption Encryption `json:"encryption"`
	// EncryptedState also encrypts the registers of SEV's guest: SEV-ES.
	EncryptedState bool `json:"encryptedState,omitempty"`
	// DHCert and Session are SEV's certificate and session of the guest's owner, in base64.
	DHCert  string `json:"dhCert,omitempty"`
	Session string `json:"session,omitempty"`
}

// Encrypts reports whether the processor encrypts the guest's memory in one of these ways; without ways, in any.
func (l *LaunchSecurity) Encrypts(ways ...Encryption) bool {
	return l != nil && (len(ways) == 0 || slices.Contains(ways, l.Encryption))
}

// launchSecurityRows are the fields of [LaunchSecurity]. The certificate has 2,084 bytes, the session 128.
func launchSecurityRows() []fields.Row {
	blob := fields.Match(`[A-Za-z0-9+/]+={0,2}`, 8192)
	return []fields.Row{
		fields.At("domain.launchSecurity.sev.policy.encryptedState", fields.Boolean),
		fields.At("domain.launchSecurity.sev.dhCert", blob),
		fields.At("domain.launchSecurity.sev.session", blob),
		fields.At("domain.launchSecurity.snp", fields.Object),
		fields.At("domain.launchSecurity.tdx", fields.Object),
	}
}

// launchSecurity returns how a guest's memory is encrypted.
func launchSecurity(given *kubevirt.LaunchSecurity) *LaunchSecurity {
	switch {
	case given == nil:
		return nil
	case given.SNP != nil:
		return &LaunchSecurity{Encryption: EncryptionSNP}
	case given.TDX != nil:
		return &LaunchSecurity{Encryption: EncryptionTDX}
	case given.SEV != nil:
		return &LaunchSecurity{
			Encryption: EncryptionSEV, DHCert: given.SEV.DHCert, Session: given.SEV.Session,
			EncryptedState: given.SEV.Policy != nil && isOr(given.SEV.Policy.EncryptedState, false),
		}
	}
	return nil
}

// checkLaunchSecurity returns what an encrypted guest can't have, as KubeVirt does.
func (s *Spec) checkLaunchSecurity(domain *field.Path, d *kubevirt.DomainSpec) field.ErrorList {
	given, at := d.LaunchSecurity, domain.Child("launchSecurity")
	if given == nil {
		return nil
	}
	var names []string
	for name, is := range map[string]bool{"SEV": given.SEV != nil, "SNP": given.SNP != nil, "TDX": given.TDX != nil} {
		if is {
			names = append(names, name)
		}
	}
	if len(names) != 1 {
		return field.ErrorList{refused(at, "One and only one launchSecurity type can be set")}
	}
	name := names[0]
	var problems field.ErrorList
	refuse := func(is bool, at *field.Path, format string, args ...any) {
		if is {
			problems = append(problems, refused(at, format, args...))
		}
	}
	efi := s.Firmware.UEFI
	refuse(efi == nil, at, "%s requires OVMF (UEFI)", name)
	refuse(efi != nil && efi.SecureBoot && !s.LaunchSecurity.Encrypts(EncryptionTDX), at,
		"%s does not work along with SecureBoot; set firmware.bootloader.efi.secureBoot to false", name)
	refuse(s.State != nil && s.State.Variables && !s.LaunchSecurity.Encrypts(EncryptionSEV), at,
		"%s does not work along with Persistent EFI variables", name)
	refuse(s.SMM && s.LaunchSecurity.Encrypts(EncryptionTDX), at, "TDX does not work along with SMM")
	for i, card := range d.Devices.Interfaces {
		refuse(card.BootOrder != nil, domain.Child("devices", "interfaces").Index(i).Child("bootOrder"),
			"%s does not work with bootable NICs: %s", name, card.Name)
	}
	refuse(isOr(d.Devices.UseVirtioTransitional, false), domain.Child("devices", "useVirtioTransitional"),
		"%s requires virtio 1.0, which keeps devices off encrypted memory", name)
	refuse(s.MaxMemory > 0, domain.Child("memory", "maxGuest"), "a guest with %s gets its memory when it starts", name)
	refuse(s.CPU.MaxSockets > 0, domain.Child("cpu", "maxSockets"), "a guest with %s gets its vCPUs when it starts", name)
	return problems
}
