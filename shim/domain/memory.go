package domain

import (
	"context"

	"libvirt.org/go/libvirt"
)

// SetMemory asks a running guest, through its balloon, to make do with so many
// bytes, rounded down to a KiB, and returns before it does. The guest need not
// follow; [Driver.Memory] tells how far it is. [ErrNotRunning] where nothing runs.
func (d *Driver) SetMemory(ctx context.Context, uuid string, bytes int64) error {
	return do(ctx, d, "set memory of", uuid, func(dom *libvirt.Domain) error {
		return dom.SetMemoryFlags(uint64(bytes>>10), libvirt.DOMAIN_MEM_LIVE)
	})
}

// Memory is what a running guest has now, in bytes: its RAM without what the
// balloon took.
func (d *Driver) Memory(ctx context.Context, uuid string) (int64, error) {
	return onDomain(ctx, d, "read memory of", uuid, func(dom *libvirt.Domain) (int64, error) {
		info, err := dom.GetInfo()
		if err != nil {
			return 0, err
		}
		return int64(info.Memory) << 10, nil
	})
}
