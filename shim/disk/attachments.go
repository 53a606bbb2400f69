package disk

import (
	"context"
	"errors"
	"maps"
	"os"
	"slices"

	"github.com/nodevirt/nodevirt/shim/domain"
	"github.com/nodevirt/nodevirt/shim/record"
)

// Attachments gives VMs their disks while they run.
type Attachments struct {
	kinds     kinds
	volumes   pvc
	files     folders
	reach     limiter
	reserved  *reservations
	processes looker
	devices   devices
}

// Attach makes what the disks need while their VM runs, and opens the files of each
// FD group that the domain's XML names. It lets the VM's processes reach the disks'
// portals, and no other address: a VM must not start if that fails. The caller closes them, also those that come
// with an error; [Attachments.Detach] undoes the rest.
func (a *Attachments) Attach(ctx context.Context, r record.Container) (map[string][]*os.File, error) {
	files := map[string][]*os.File{}
	if err := a.reach.Allow(ctx, r.Domain.UID, reachable(a.Describe(r))); err != nil {
		return files, err
	}
	a.reserved.manage(r.ID)
	look := a.processes.once()
	for _, k := range of(r) {
		k.look = look
		opened, err := a.kinds.of(k).attach(ctx, k)
		maps.Copy(files, opened)
		if err == nil {
			err = unheldAll(k, opened)
		}
		if err == nil {
			err = setDirect(k, opened)
		}
		if err != nil {
			return files, k.wrap("open", err)
		}
	}
	return files, nil
}

// Detach undoes Attach, and Plug of all disks that the VM has got.
func (a *Attachments) Detach(ctx context.Context, r record.Container) error {
	var errs []error
	for _, k := range slices.Backward(plugged(r)) {
		errs = append(errs, a.Unplug(ctx, r, k.Disk))
	}
	for _, k := range slices.Backward(of(r)) {
		errs = append(errs, k.wrap("detach", a.kinds.of(k).detach(ctx, k)))
	}
	errs = append(errs, removeNodes(a.devices, r.ID), a.reach.Allow(ctx, r.Domain.UID, nil))
	return errors.Join(errs...)
}

// Restore restores the parts of Attach that a running VM has lost.
func (a *Attachments) Restore(ctx context.Context, r record.Container) error {
	var errs []error
	for _, k := range of(r) {
		errs = append(errs, k.wrap("restore", a.kinds.of(k).restore(ctx, k)))
	}
	return errors.Join(errs...)
}

// Describe returns the disks for their domain, in the order of the spec.
func (a *Attachments) Describe(r record.Container) []domain.Disk {
	var all []domain.Disk
	for _, k := range of(r) {
		all = append(all, a.kinds.of(k).describe(k))
	}
	return all
}

// Writable returns the container's own files that take its guest's writes.
func (a *Attachments) Writable(r record.Container) []string {
	var all []string
	for _, k := range of(r) {
		if path := a.kinds.of(k).writable(k); path != "" {
			all = append(all, path)
		}
	}
	return all
}

// Written returns the container's own files that take its guest's writes, by the disks' names.
func (a *Attachments) Written(r record.Container) map[string]string {
	all := map[string]string{}
	for _, k := range of(r) {
		if path := a.kinds.of(k).writable(k); path != "" && !k.ReadOnly && !k.CDROM {
			all[k.Name] = path
		}
	}
	return all
}
