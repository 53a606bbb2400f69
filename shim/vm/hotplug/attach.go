package hotplug

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"

	"github.com/nodevirt/nodevirt/imageunpack"
	"github.com/nodevirt/nodevirt/shim/domain"
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
	d, err := vmspec.Hotplug(a.Disk, a.Path, a.Size, a.Preallocated, config)
	if err != nil {
		return order.Disk{}, fmt.Errorf("%w: %w", vmerrors.ErrInvalid, err)
	}
	volumes := h.accesses.Of(v)
	access, err := volumes.take(d.Name)
	if err != nil {
		return order.Disk{}, err
	}
	answer, err := h.attachBy(ctx, v, access, record.PluggedDisk{State: record.Attaching, Disk: d, Container: a.Container, Order: a.Disk})
	volumes.leave(access)
	if failed, is := errors.AsType[*halfway](err); is { // only now may the disk be settled
		return order.Disk{}, h.undo(ctx, v, failed.disk, failed.error)
	}
	return answer, err
}

// halfway is the error of an attachment that has begun.
type halfway struct {
	error
	disk record.PluggedDisk
}

func (h *halfway) Unwrap() error { return h.error }

// attachBy attaches a disk whose volume is accessed alone. The volume is opened between two turns of the VM's: a stop does not
// wait for it. An error is [halfway] once the disk is on record.
func (h *Hotplugs) attachBy(ctx context.Context, v *table.VM, access *access, p record.PluggedDisk) (order.Disk, error) {
	r, p, begun, err := h.begin(ctx, v, p)
	if err != nil || !begun {
		return about(r, p.Disk.Name), err
	}
	p.Content, err = acquire(ctx, h.o.Volumes, r, p.Disk)
	if err == nil && p.Content.Image != nil {
		err = h.record(ctx, v, p)
	}
	if err != nil {
		return order.Disk{}, &halfway{err, p}
	}
	var (
		d    domain.PluggedDisk
		file *os.File
	)
	late := func() { //nolint:contextcheck // the order has been answered: it has the tasks' context
		if file != nil {
			_ = file.Close()
		}
		within, cancel := background.AtMost(h.o.Tasks.Context(), patience)
		defer cancel()
		if err := h.o.Volumes.Unplug(within, r, p.Disk); err != nil {
			table.Logger(h.o.Logger, r).Warn("releasing a volume that had not answered failed", "disk", p.Disk.Name, "error", err)
		}
	}
	err = access.do(ctx, v.Exited(), func(ctx context.Context) (err error) {
		d, file, err = h.o.Volumes.Plug(ctx, r.WithPlugged(p), p)
		return err
	}, late)
	if err != nil {
		return order.Disk{}, &halfway{err, p}
	}
	answer, err := h.plug(ctx, v, p, d, file)
	if err = errors.Join(err, file.Close()); err != nil {
		return order.Disk{}, &halfway{err, p}
	}
	return answer, nil
}

// begin records that a disk is being attached; begun is false for one that the VM has.
func (h *Hotplugs) begin(ctx context.Context, v *table.VM, p record.PluggedDisk) (r record.Container, _ record.PluggedDisk, begun bool, _ error) {
	unlock, err := v.Lock(ctx)
	if err != nil {
		return r, p, false, err
	}
	defer unlock()
	r = v.Record()
	if i := r.FindPlugged(p.Disk.Name); i >= 0 {
		_, err := again(r, r.Plugged[i], p.Container)
		return r, p, false, err
	}
	if err := h.check(v, r, p.Disk); err != nil {
		return r, p, false, err
	}
	if p.Disk, err = placed(r, p.Disk); err != nil {
		return r, p, false, err
	}
	p.Set = freeSet(r)
	r = r.WithPlugged(p)
	return r, p, true, h.o.Table.Put(v, r)
}

// record records what a disk is made of.
func (h *Hotplugs) record(ctx context.Context, v *table.VM, p record.PluggedDisk) error {
	unlock, err := v.Lock(ctx)
	if err != nil {
		return err
	}
	defer unlock()
	return h.o.Table.Put(v, v.Record().WithPlugged(p))
}

// plug gives a disk to QEMU, and records that.
func (h *Hotplugs) plug(ctx context.Context, v *table.VM, p record.PluggedDisk, d domain.PluggedDisk, file *os.File) (order.Disk, error) {
	unlock, err := v.Lock(ctx)
	if err != nil {
		return order.Disk{}, err
	}
	defer unlock()
	r := v.Record()
	if err := h.steady(v, r); err != nil {
		return order.Disk{}, err
	}
	within, cancel := background.AtMost(ctx, patience)
	defer cancel()
	if err := h.o.Domains.Attach(within, r.Domain.UUID, d, file); err != nil {
		return order.Disk{}, err
	}
	p.State = record.Attached
	if err := h.o.Table.Put(v, r.WithPlugged(p)); err != nil {
		h.settleLater(v) // the disk is attached, which libvirt says, too
		return order.Disk{}, err
	}
	h.o.Conditions.Update(v)
	table.Logger(h.o.Logger, r).Info("a disk is attached to the VM", "disk", d.Spec.Name, "target", p.Disk.Target)
	return about(v.Record(), p.Disk.Name), nil
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

// undo undoes an attachment that failed, or has that done later.
func (h *Hotplugs) undo(ctx context.Context, v *table.VM, p record.PluggedDisk, failed error) error {
	ctx, cancel := background.AtMost(context.WithoutCancel(ctx), patience)
	defer cancel()
	unlock, err := v.Lock(ctx)
	if errors.Is(err, vmerrors.ErrNotFound) {
		return failed // with the VM, all of it went
	}
	if err != nil {
		h.settleLater(v)
		return errors.Join(failed, err)
	}
	defer unlock()
	if i := v.Record().FindPlugged(p.Disk.Name); i < 0 || v.Record().Plugged[i].State == record.Attached {
		return failed
	}
	if _, err := h.settleOne(ctx, v, p); err != nil {
		h.settleLater(v)
		return errors.Join(failed, fmt.Errorf("undo it, which is tried again: %w", err))
	}
	if v.Record().FindPlugged(p.Disk.Name) >= 0 {
		h.settleLater(v)
	}
	return failed
}
