package domain

import (
	"context"

	"libvirt.org/go/libvirt"
)

// Balloon changes and reads how much of its RAM a running guest has.
type Balloon struct{ conn *Connection }

// SetMemory requests, through the balloon, that a running guest uses only so many
// bytes, rounded down to a KiB. It returns before the guest reacts, and the guest
// may ignore the request; [Balloon.Memory] returns the current value. The error is
// [ErrNotRunning] if the domain is shut off.
func (b *Balloon) SetMemory(ctx context.Context, uuid string, bytes int64) error {
	return do(ctx, b.conn, "set memory of", uuid, func(dom *libvirt.Domain) error {
		return dom.SetMemoryFlags(uint64(bytes>>10), libvirt.DOMAIN_MEM_LIVE)
	})
}

// Memory returns a running guest's memory in bytes: its RAM without the balloon.
func (b *Balloon) Memory(ctx context.Context, uuid string) (int64, error) {
	return onDomain(ctx, b.conn, "read memory of", uuid, func(dom *libvirt.Domain) (int64, error) {
		info, err := dom.GetInfo()
		if err != nil {
			return 0, err
		}
		return int64(info.Memory) << 10, nil
	})
}
