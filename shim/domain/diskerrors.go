package domain

import (
	"context"

	"libvirt.org/go/libvirt"
)

// DiskErrors returns the targets of those disks of a running domain at which QEMU has an error, and for each whether its
// storage has no space left.
func (o *Observer) DiskErrors(ctx context.Context, uuid string) (map[string]bool, error) {
	return onDomain(ctx, o.conn, "find the failing disks of", uuid, func(dom *libvirt.Domain) (map[string]bool, error) {
		found, err := dom.GetDiskErrors(0)
		if err != nil {
			return nil, err
		}
		all := map[string]bool{}
		for _, e := range found {
			if e.Error != libvirt.DOMAIN_DISK_ERROR_NONE && e.Disk != "" {
				all[e.Disk] = e.Error == libvirt.DOMAIN_DISK_ERROR_NO_SPACE
			}
		}
		return all, nil
	})
}
