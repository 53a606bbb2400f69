package domain

import (
	"context"
	"fmt"
	"os"

	"libvirt.org/go/libvirt"
)

// Growth is the growth of a disk.
type Growth struct {
	// Target is the disk's, Size the size in bytes that its file or device has room for.
	Target string
	Size   int64
	// Set is the set of a disk that the domain has got since it runs; nil for another one.
	Set *int
}

// Grow makes a disk of a running domain larger. QEMU extends a file. A disk that is as large
// already is no error. The file or device, opened for reading, stays the caller's. The error
// is [ErrPaused] for a disk with a set while the guest is paused.
func (h *Hotplug) Grow(ctx context.Context, uuid string, g Growth, file *os.File) error {
	const op = "grow a disk of"
	files, err := duplicate(map[string][]*os.File{"": {file}})
	if err != nil {
		return &failure{op: op, object: "domain " + uuid, detail: err}
	}
	_, err = await(ctx, op, "domain "+uuid, func() (struct{}, error) {
		defer files.close()
		return struct{}{}, do(context.WithoutCancel(ctx), h.conn, op, uuid, func(dom *libvirt.Domain) error {
			now, err := h.capacity(dom, g.Target)
			if err != nil || g.Size < 0 || now >= uint64(g.Size) {
				return err
			}
			if g.Set != nil {
				if err := renew(dom, firstSet+*g.Set, files[""][0]); err != nil {
					return err
				}
			}
			return dom.BlockResize(g.Target, uint64(g.Size), libvirt.DOMAIN_BLOCK_RESIZE_BYTES)
		})
	})
	return err
}

// capacity returns the size of a disk. libvirt has no other query for disks with FD groups.
func (h *Hotplug) capacity(dom *libvirt.Domain, target string) (uint64, error) {
	conn, err := dom.DomainGetConnect()
	if err != nil {
		return 0, err
	}
	defer func() { _, _ = conn.Close() }()
	all, err := conn.GetAllDomainStats([]*libvirt.Domain{dom}, libvirt.DOMAIN_STATS_BLOCK, 0)
	if err != nil {
		return 0, err
	}
	defer func() {
		for _, s := range all {
			_ = s.Domain.Free()
		}
	}()
	for _, s := range all {
		for _, b := range s.Block {
			if b.NameSet && b.Name == target && b.CapacitySet {
				return b.Capacity, nil
			}
		}
	}
	return 0, fmt.Errorf("disk %s: %w", target, os.ErrNotExist)
}

// renew replaces the descriptor for reading of a set. QEMU has opened the disk by it first, and
// leaves locks on it, which the descriptor for writing then may not cross.
func renew(dom *libvirt.Domain, set int, file *os.File) error {
	if err := dropReader(dom, set); err != nil {
		return err
	}
	_, err := command(dom, "add-fd", map[string]any{"fdset-id": set, "opaque": forReading}, *file)
	return err
}
