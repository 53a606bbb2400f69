package domain

import (
	"libvirt.org/go/libvirtxml"

	"github.com/nodevirt/nodevirt/shim/vmspec"
)

// The bits of policies, by AMD's specifications of SEV's and SEV-SNP's interfaces. KubeVirt's guests have
// the same ones: no debugger of the node reads the guest.
const (
	sevNoDebug        = 1 << 0
	sevEncryptedState = 1 << 2
	snpThreads        = 1 << 16 // the node may have two threads on a core
	snpReserved       = 1 << 17 // always set
)

// launchSecurity returns how the guest's memory is encrypted; nil for a guest whose memory is not.
func launchSecurity(desc Description) *libvirtxml.DomainLaunchSecurity {
	given, host := desc.Spec.LaunchSecurity, desc.Encryption
	if given == nil {
		return nil
	}
	switch given.Encryption {
	case vmspec.EncryptionSEV:
		policy := uint(sevNoDebug)
		if given.EncryptedState {
			policy |= sevEncryptedState
		}
		return &libvirtxml.DomainLaunchSecurity{SEV: &libvirtxml.DomainLaunchSecuritySEV{
			CBitPos: &host.CBitPos, ReducedPhysBits: &host.ReducedPhysBits, Policy: &policy,
			DHCert: given.DHCert, Session: given.Session,
		}}
	case vmspec.EncryptionSNP:
		return &libvirtxml.DomainLaunchSecurity{SEVSNP: &libvirtxml.DomainLaunchSecuritySEVSNP{
			CBitPos: &host.CBitPos, ReducedPhysBits: &host.ReducedPhysBits, Policy: new(uint64(snpThreads | snpReserved)),
		}}
	case vmspec.EncryptionTDX:
		return &libvirtxml.DomainLaunchSecurity{TDX: new(libvirtxml.DomainLaunchSecurityTDX)}
	}
	return nil
}

// encrypt changes a domain whose guest's memory is encrypted. Virtio devices only reach the memory that
// the guest shares, by the DMA of its kernel. The memory of SEV has fixed addresses: QEMU locks it when it starts.
func encrypt(d *libvirtxml.Domain, desc Description) {
	if !desc.Spec.LaunchSecurity.Encrypts() {
		return
	}
	shareDMA(d.Devices)
	if desc.Spec.LaunchSecurity.Encrypts(vmspec.EncryptionSEV) {
		if d.MemoryBacking == nil {
			d.MemoryBacking = new(libvirtxml.DomainMemoryBacking)
		}
		d.MemoryBacking.MemoryLocked = new(libvirtxml.DomainMemoryLocked)
	}
	if desc.Spec.LaunchSecurity.Encrypts(vmspec.EncryptionTDX) { // which has no performance counters
		d.Features.PMU = &libvirtxml.DomainFeatureState{State: "off"}
	}
}

// shareDMA sets the attribute iommu of each virtio device.
func shareDMA(d *libvirtxml.DomainDeviceList) {
	const on = "on"
	for i := range d.Disks {
		if t := d.Disks[i].Target; t != nil && t.Bus == virtio {
			d.Disks[i].Driver.IOMMU = on
		}
	}
	for i := range d.Controllers {
		if c := &d.Controllers[i]; c.Type == "scsi" || c.Type == virtioSerial {
			c.Driver = orNew(c.Driver)
			c.Driver.IOMMU = on
		}
	}
	for i := range d.Interfaces {
		if n := &d.Interfaces[i]; n.Model != nil && n.Model.Type == virtio {
			n.Driver = orNew(n.Driver)
			n.Driver.IOMMU = on
		}
	}
	for i := range d.Inputs {
		if d.Inputs[i].Bus == virtio {
			d.Inputs[i].Driver = &libvirtxml.DomainInputDriver{IOMMU: on}
		}
	}
	for i := range d.Videos {
		if d.Videos[i].Model.Type == virtio {
			d.Videos[i].Driver = &libvirtxml.DomainVideoDriver{IOMMU: on}
		}
	}
	for i := range d.RNGs {
		d.RNGs[i].Driver = &libvirtxml.DomainRNGDriver{IOMMU: on}
	}
	if d.VSock != nil {
		d.VSock.Driver = &libvirtxml.DomainVSockDriver{IOMMU: on}
	}
	if b := d.MemBalloon; b != nil && b.Model != "none" {
		b.Driver, b.FreePageReporting = &libvirtxml.DomainMemBalloonDriver{IOMMU: on}, "" // locked memory stays
	}
}

func orNew[T any](p *T) *T {
	if p == nil {
		return new(T)
	}
	return p
}
