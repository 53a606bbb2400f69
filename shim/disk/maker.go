package disk

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/nodevirt/nodevirt/imageunpack"
	"github.com/nodevirt/nodevirt/imageunpack/expand"
	"github.com/nodevirt/nodevirt/shim/record"
	"github.com/nodevirt/nodevirt/shim/vmspec"
)

// Maker makes the disks of VM containers, and undoes that.
type Maker struct {
	kinds     kinds
	images    imageHolder
	volumes   pvc
	reserved  *reservations
	processes looker
	devices   devices
}

// Acquire returns what the disks of a container are made of. The container, by its
// id, has no record yet, and its pod is in a Kubernetes namespace. Own is the disk of
// the container's image, acquired for that id, and nil for a VM that uses none.
// [Maker.Release] undoes Acquire, also after an error. Errors are those of
// imageunpack, and ErrUnknown for a missing import.
func (m *Maker) Acquire(
	ctx context.Context, id, namespace string, disks []vmspec.Disk, own *imageunpack.Disk,
) (map[string]record.Disk, error) {
	acquired := map[string]record.Disk{}
	for _, spec := range disks {
		k := Disk{Disk: spec, VM: record.Container{ID: id}, namespace: namespace}
		content, err := m.kinds.content(k).acquire(ctx, k, own)
		if err != nil {
			return nil, fmt.Errorf("disk %q: %w", k.Name, err)
		}
		if k.BlockSize.MatchVolume {
			if content.BlockSize, err = m.volumes.blockSize(k); err != nil {
				return nil, fmt.Errorf("disk %q: find the volume's block size: %w", k.Name, err)
			}
		}
		acquired[k.Name] = content
	}
	return acquired, nil
}

// Release releases the images of a container's disks, and the container's own
// image. Images that are not held are no error.
func (m *Maker) Release(ctx context.Context, id string, disks []vmspec.Disk) error {
	var errs []error
	for _, spec := range disks {
		k := Disk{Disk: spec, VM: record.Container{ID: id}}
		errs = append(errs, m.kinds.content(k).release(ctx, k))
	}
	return errors.Join(append(errs, m.images.Release(ctx, id))...)
}

// RemoveNodes removes the nodes of block devices that a VM without a record had, once its QEMU has ended.
// [Attachments.Detach] removes those of a VM with a record.
func (m *Maker) RemoveNodes(id string) error { return removeNodes(m.devices, id) }

// TakeTime reports whether Create may take longer than a call does.
func (m *Maker) TakeTime(r record.Container) bool {
	return slices.ContainsFunc(of(r), func(k Disk) bool { return m.kinds.of(k).takesTime(k) })
}

// Create makes the disks of a container whose folder and record exist. Remove undoes
// it, also after an error. Create calls progress, until it returns, with the state of
// each disk that takes time to make.
func (m *Maker) Create(ctx context.Context, r record.Container, progress func(disk string, p expand.Progress)) error {
	look := m.processes.once()
	for _, k := range of(r) {
		k.look = look
		k.progress = func(p expand.Progress) { progress(k.Name, p) }
		if err := m.kinds.of(k).create(ctx, k); err != nil {
			return k.wrap("make", err)
		}
	}
	return nil
}

// Recover finds again, when the shim starts, what the disks of a recorded container
// hold in its memory. A problem with one disk does not affect the others.
func (m *Maker) Recover(r record.Container) error {
	if mayRun(r) {
		m.reserved.manage(r.ID)
	}
	var errs []error
	for _, k := range append(of(r), plugged(r)...) {
		errs = append(errs, k.wrap("lock", m.kinds.of(k).recover(k, mayRun(r))))
	}
	return errors.Join(errs...)
}

// mayRun reports whether a VM may run, as far as is known before libvirtd answers.
func mayRun(r record.Container) bool {
	return r.State == record.Running || r.State == record.Starting || r.State == record.Exited && r.Unclean
}

// Remove undoes Create outside of the container's folder.
func (m *Maker) Remove(ctx context.Context, r record.Container) error {
	var errs []error
	for _, k := range slices.Backward(of(r)) {
		errs = append(errs, k.wrap("remove", m.kinds.of(k).remove(ctx, k)))
	}
	m.reserved.forget(r.ID)
	return errors.Join(errs...)
}
