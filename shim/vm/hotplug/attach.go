package hotplug

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/nodevirt/nodevirt/imageunpack"
	"github.com/nodevirt/nodevirt/shim/record"
	"github.com/nodevirt/nodevirt/shim/vm/attachment"
	"github.com/nodevirt/nodevirt/shim/vm/background"
	"github.com/nodevirt/nodevirt/shim/vm/hotplug/order"
	"github.com/nodevirt/nodevirt/shim/vm/table"
	"github.com/nodevirt/nodevirt/shim/vm/vmerrors"
	"github.com/nodevirt/nodevirt/shim/vmspec"
)

// attach attaches a disk. If it fails, the VM has no such disk, or the node goes on to
// find that out.
func (h *Hotplugs) attach(ctx context.Context, v *table.VM, a order.Attachment) (order.Disk, error) {
	if size := len(a.Disk) + len(a.Path); size > maxOrder {
		return order.Disk{}, fmt.Errorf("%w: the disk's description has %d bytes, the limit is %d", vmerrors.ErrInvalid, size, maxOrder)
	}
	config, err := attachment.Find(ctx, h.o.Pods, v.Record(), a.Container)
	if err != nil {
		return order.Disk{}, err
	}
	d, err := vmspec.Hotplug(a.Disk, a.Path, a.Size, config)
	if err != nil {
		return order.Disk{}, fmt.Errorf("%w: %w", vmerrors.ErrInvalid, err)
	}
	unlock, err := v.Lock(ctx)
	if err != nil {
		return order.Disk{}, err
	}
	defer unlock()
	r := v.Record()
	if i := r.FindPlugged(d.Name); i >= 0 {
		return again(r, r.Plugged[i], a.Container)
	}
	if err := h.check(v, r, d); err != nil {
		return order.Disk{}, err
	}
	if d, err = placed(r, d); err != nil {
		return order.Disk{}, err
	}
	p := record.PluggedDisk{State: record.Attaching, Disk: d, Container: a.Container, Set: freeSet(r), Order: a.Disk}
	r = r.WithPlugged(p)
	if err := h.o.Table.Put(v, r); err != nil {
		return order.Disk{}, err
	}
	if p.Content, err = acquire(ctx, h.o.Volumes, r, d); err != nil {
		return order.Disk{}, h.undo(ctx, v, p, err)
	}
	if r = r.WithPlugged(p); p.Content.Image != nil {
		if err := h.o.Table.Put(v, r); err != nil {
			return order.Disk{}, h.undo(ctx, v, p, err)
		}
	}
	if err := h.plug(ctx, r, p); err != nil {
		return order.Disk{}, h.undo(ctx, v, p, err)
	}
	p.State = record.Attached
	if err := h.o.Table.Put(v, r.WithPlugged(p)); err != nil {
		h.settleLater(v) // the disk is attached, which libvirt says, too
		return order.Disk{}, err
	}
	h.o.Conditions.Update(v)
	table.Logger(h.o.Logger, r).Info("a disk is attached to the VM", "disk", d.Name, "target", p.Disk.Target)
	return about(v.Record(), d.Name), nil
}

// again answers an order for a disk that the VM has.
func again(r record.Container, p record.PluggedDisk, container string) (order.Disk, error) {
	switch {
	case p.State == record.Detaching:
		return order.Disk{}, fmt.Errorf("%w: disk %q is being detached; wait until it is gone", vmerrors.ErrState, p.Disk.Name)
	case p.Container != container:
		return order.Disk{}, fmt.Errorf("disk %q of container %s: %w", p.Disk.Name, p.Container, vmerrors.ErrExists)
	}
	return about(r, p.Disk.Name), nil
}

// check refuses a disk that the VM can't get.
func (h *Hotplugs) check(v *table.VM, r record.Container, d vmspec.Disk) error {
	if err := h.steady(v, r); err != nil {
		return err
	}
	if len(r.Plugged) >= maxPlugged {
		return fmt.Errorf("%w: a running VM gets at most %d disks", vmerrors.ErrRange, maxPlugged)
	}
	if d.Bus == vmspec.BusVirtio && r.Spec.Transitional {
		return fmt.Errorf("%w: the VM has useVirtioTransitional, and gets disks on bus scsi alone", vmerrors.ErrState)
	}
	for _, other := range disksOf(r) {
		if other.Source == vmspec.SourceDrive && d.CDROM {
			continue
		}
		if other.Name == d.Name {
			return fmt.Errorf("disk %q: %w", d.Name, vmerrors.ErrExists)
		}
		if d.Serial != "" && other.Serial == d.Serial {
			return fmt.Errorf("%w: disk %q has the serial number %q, too", vmerrors.ErrInvalid, other.Name, d.Serial)
		}
	}
	return nil
}

// disksOf returns all disks of a VM.
func disksOf(r record.Container) []vmspec.Disk {
	all := slices.Clone(r.Spec.Disks)
	for _, p := range r.Plugged {
		all = append(all, p.Disk)
	}
	return all
}

// placed returns a disk with its target. A medium has the target of its drive.
func placed(r record.Container, d vmspec.Disk) (vmspec.Disk, error) {
	if !d.CDROM {
		all := append(disksOf(r), d)
		d.Target = vmspec.Targets(all)[len(all)-1]
		return d, nil
	}
	i := slices.IndexFunc(r.Spec.Disks, func(other vmspec.Disk) bool { return other.Name == d.Name })
	if i < 0 || r.Spec.Disks[i].Source != vmspec.SourceDrive {
		return d, fmt.Errorf("%w: the VM has not started with an empty CD-ROM drive %q; restart it", vmerrors.ErrState, d.Name)
	}
	d.Target, d.Bus, d.Serial = r.Spec.Disks[i].Target, r.Spec.Disks[i].Bus, ""
	return d, nil
}

// freeSet returns the first number that no disk has.
func freeSet(r record.Container) int {
	for n := 0; ; n++ {
		if !slices.ContainsFunc(r.Plugged, func(p record.PluggedDisk) bool { return p.Set == n }) {
			return n
		}
	}
}

// acquire returns what a disk is made of.
func acquire(ctx context.Context, from Volumes, r record.Container, d vmspec.Disk) (record.Disk, error) {
	content, err := from.Acquire(ctx, r, d)
	if errors.Is(err, imageunpack.ErrUnusable) || errors.Is(err, imageunpack.ErrNoDisk) {
		err = fmt.Errorf("%w: %w", vmerrors.ErrInvalid, err)
	}
	return content, err
}

// plug gives a disk to QEMU.
func (h *Hotplugs) plug(ctx context.Context, r record.Container, p record.PluggedDisk) error {
	ctx, cancel := background.AtMost(ctx, patience)
	defer cancel()
	d, file, err := h.o.Volumes.Plug(ctx, r, p)
	if err != nil {
		return err
	}
	defer file.Close()
	return h.o.Domains.Attach(ctx, r.Domain.UUID, d, file)
}

// undo undoes an attachment that failed, or has that done later. The caller has the VM's turn.
func (h *Hotplugs) undo(ctx context.Context, v *table.VM, p record.PluggedDisk, failed error) error {
	ctx, cancel := background.AtMost(context.WithoutCancel(ctx), patience)
	defer cancel()
	if _, err := h.settleOne(ctx, v, p); err != nil {
		h.settleLater(v)
		return errors.Join(failed, fmt.Errorf("undo it, which is tried again: %w", err))
	}
	if v.Record().FindPlugged(p.Disk.Name) >= 0 {
		h.settleLater(v)
	}
	return failed
}
