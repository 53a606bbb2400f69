package disk

import (
	"context"
	"errors"
	"maps"
	"os"
	"slices"

	"github.com/nodevirt/nodevirt/imageunpack/expand"
	"github.com/nodevirt/nodevirt/shim/domain"
	"github.com/nodevirt/nodevirt/shim/record"
)

// TakeTime reports whether Create may take longer than a call does.
func (d *Disks) TakeTime(r record.Container) bool {
	return slices.ContainsFunc(of(r), func(k Disk) bool { return d.kind(k).takesTime(k) })
}

// Create makes the disks of a container whose folder and record exist. Remove undoes
// it, also after an error. Create calls progress, until it returns, with the state of
// each disk that takes time to make.
func (d *Disks) Create(ctx context.Context, r record.Container, progress func(disk string, p expand.Progress)) error {
	for _, k := range of(r) {
		k.progress = func(p expand.Progress) { progress(k.Name, p) }
		if err := d.kind(k).create(ctx, k); err != nil {
			return k.wrap("make", err)
		}
	}
	return nil
}

// Recover finds again, when the shim starts, what the disks of a recorded container
// hold in its memory. A problem with one disk does not affect the others.
func (d *Disks) Recover(r record.Container) error {
	var errs []error
	for _, k := range of(r) {
		errs = append(errs, k.wrap("lock", d.kind(k).recover(k, mayRun(r))))
	}
	return errors.Join(errs...)
}

// mayRun reports whether a VM may run, as far as is known before libvirtd answers.
func mayRun(r record.Container) bool {
	return r.State == record.Running || r.State == record.Starting || r.State == record.Exited && r.Unclean
}

// Remove undoes Create outside of the container's folder.
func (d *Disks) Remove(ctx context.Context, r record.Container) error {
	var errs []error
	for _, k := range slices.Backward(of(r)) {
		errs = append(errs, k.wrap("remove", d.kind(k).remove(ctx, k)))
	}
	return errors.Join(errs...)
}

// Attach makes what the disks need while their VM runs, and opens the files of each
// FD group that the domain's XML names. The caller closes them, also those that come
// with an error; [Disks.Detach] undoes the rest.
func (d *Disks) Attach(ctx context.Context, r record.Container) (map[string][]*os.File, error) {
	files := map[string][]*os.File{}
	for _, k := range of(r) {
		opened, err := d.kind(k).attach(ctx, k)
		maps.Copy(files, opened)
		if err != nil {
			return files, k.wrap("open", err)
		}
	}
	return files, nil
}

// Detach undoes Attach.
func (d *Disks) Detach(ctx context.Context, r record.Container) error {
	var errs []error
	for _, k := range slices.Backward(of(r)) {
		errs = append(errs, k.wrap("detach", d.kind(k).detach(ctx, k)))
	}
	return errors.Join(errs...)
}

// Restore puts back the parts of Attach that a running VM has lost.
func (d *Disks) Restore(ctx context.Context, r record.Container) error {
	var errs []error
	for _, k := range of(r) {
		errs = append(errs, k.wrap("put back", d.kind(k).restore(ctx, k)))
	}
	return errors.Join(errs...)
}

// Describe returns the disks for their domain, in the order of the spec.
func (d *Disks) Describe(r record.Container) []domain.Disk {
	var all []domain.Disk
	for _, k := range of(r) {
		all = append(all, d.kind(k).describe(k))
	}
	return all
}

// Writable returns the container's own files that take its guest's writes.
func (d *Disks) Writable(r record.Container) []string {
	var all []string
	for _, k := range of(r) {
		if path := d.kind(k).writable(k); path != "" {
			all = append(all, path)
		}
	}
	return all
}
