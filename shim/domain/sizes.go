package domain

import (
	"context"
	"fmt"

	"libvirt.org/go/libvirt"
	"libvirt.org/go/libvirtxml"
)

// Sizes reads how many vCPUs and how much RAM running domains have, and adds to both. It takes
// nothing away: few guests release a vCPU, and QEMU may crash when one without hardware
// acceleration does. [Balloon] takes RAM from a guest.
type Sizes struct{ conn *Connection }

// Size is what a running domain has.
type Size struct {
	// VCPUs is the number of vCPUs, RAM the memory in bytes, with the part that the balloon has.
	VCPUs uint32
	RAM   int64
}

// Size returns what a running domain has. The error is [ErrNotRunning] if it is shut off.
func (s *Sizes) Size(ctx context.Context, uuid string) (Size, error) {
	return onDomain(ctx, s.conn, "read vCPUs and RAM of", uuid, func(dom *libvirt.Domain) (Size, error) {
		vcpus, err := dom.GetVcpusFlags(libvirt.DOMAIN_VCPU_LIVE)
		if err != nil {
			return Size{}, err
		}
		kib, err := dom.GetMaxMemory()
		return Size{VCPUs: uint32(vcpus), RAM: int64(kib) << 10}, err
	})
}

// AddVCPUs gives a running guest vCPUs until it has so many. It returns before the guest uses them.
func (s *Sizes) AddVCPUs(ctx context.Context, uuid string, count uint32) error {
	return do(ctx, s.conn, "add vCPUs to", uuid, func(dom *libvirt.Domain) error {
		has, err := dom.GetVcpusFlags(libvirt.DOMAIN_VCPU_LIVE)
		if err != nil || uint32(has) >= count {
			return err
		}
		return dom.SetVcpusFlags(uint(count), libvirt.DOMAIN_VCPU_LIVE)
	})
}

// AddRAM gives a running guest RAM, as one memory module, until it has so many bytes. It returns
// before the guest uses it.
func (s *Sizes) AddRAM(ctx context.Context, uuid string, bytes int64) error {
	return do(ctx, s.conn, "add RAM to", uuid, func(dom *libvirt.Domain) error {
		kib, err := dom.GetMaxMemory()
		more := bytes - int64(kib)<<10
		if err != nil || more <= 0 {
			return err
		}
		if more%mib != 0 {
			return fmt.Errorf("%d bytes are no multiple of 1 MiB", more)
		}
		text, err := (&libvirtxml.DomainMemorydev{Model: "dimm", Target: &libvirtxml.DomainMemorydevTarget{
			Size: &libvirtxml.DomainMemorydevTargetSize{Value: uint(more / mib), Unit: "MiB"},
			Node: &libvirtxml.DomainMemorydevTargetNode{Value: 0},
		}}).Marshal()
		if err != nil {
			return err
		}
		return dom.AttachDeviceFlags(text, libvirt.DOMAIN_DEVICE_MODIFY_LIVE)
	})
}
