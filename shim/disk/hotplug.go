package disk

import (
	"context"
	"errors"
	"fmt"
	"os"

	"github.com/nodevirt/nodevirt/shim/domain"
	"github.com/nodevirt/nodevirt/shim/record"
	"github.com/nodevirt/nodevirt/shim/vmspec"
)

// plugger is a kind whose disks running VMs can get.
type plugger interface {
	// plug opens the volume, and reserves it. Detach of the kind undoes the rest.
	plug(context.Context, Disk) (*os.File, error)
}

// Acquire returns what a disk that a running VM gets is made of; nothing for one on a PVC. [Attachments.Unplug]
// undoes it, also after an error, which is one of imageunpack's.
func (a *Attachments) Acquire(ctx context.Context, r record.Container, d vmspec.Disk) (record.Disk, error) {
	k := Disk{Disk: d, VM: r}
	content, err := a.kinds.content(k).acquire(ctx, k, nil)
	return content, k.wrap("find", err)
}

// Plug opens the volume of a disk that a running VM gets, and describes it for QEMU. The
// caller closes the file; [Attachments.Unplug] undoes the rest, also after an error.
func (a *Attachments) Plug(ctx context.Context, r record.Container, p record.PluggedDisk) (domain.PluggedDisk, *os.File, error) {
	k := Disk{Disk: p.Disk, Content: p.Content, VM: r, look: a.processes.once()}
	kind, can := a.kinds.of(k).(plugger)
	if !can {
		return domain.PluggedDisk{}, nil, fmt.Errorf("%w: a running VM can't get disk %q", ErrVolume, k.Name)
	}
	f, err := kind.plug(ctx, k)
	if err == nil {
		err = unheld(k, f)
	}
	if err == nil {
		err = setDirect(k, map[string][]*os.File{"": {f}})
	}
	if err != nil {
		if f != nil {
			err = errors.Join(err, f.Close())
		}
		return domain.PluggedDisk{}, nil, k.wrap("open", err)
	}
	return domain.PluggedDisk{Spec: p.Disk, Layer: a.kinds.of(k).describe(k).Layers[0], Set: p.Set}, f, nil
}

// Unplug undoes Plug and Acquire. QEMU has closed the volume.
func (a *Attachments) Unplug(ctx context.Context, r record.Container, d vmspec.Disk) error {
	k := Disk{Disk: d, VM: r}
	return k.wrap("detach", errors.Join(a.kinds.of(k).detach(ctx, k), a.kinds.content(k).release(ctx, k)))
}

// plugged returns the disks that a VM has got since it runs.
func plugged(r record.Container) []Disk {
	all := make([]Disk, 0, len(r.Plugged))
	for _, p := range r.Plugged {
		all = append(all, Disk{Disk: p.Disk, Content: p.Content, VM: r})
	}
	return all
}

func (r readOnly) plug(ctx context.Context, k Disk) (*os.File, error) {
	return r.images.Open(ctx, k.image(), k.image().Path)
}

func (b blockPVC) plug(_ context.Context, k Disk) (*os.File, error) {
	f, number, err := b.devices.open(k.Host, k.ReadOnly)
	if err != nil {
		return nil, err
	}
	if err := b.ask(k, number, b.reserved.take); err != nil {
		return f, err
	}
	return f, lockedNow(k, f)
}

func (p filePVC) plug(ctx context.Context, k Disk) (*os.File, error) {
	if k.Size > 0 { // the volume was perhaps just provisioned
		if err := p.create(ctx, k); err != nil {
			return nil, err
		}
	}
	f, err := p.open(k, false)
	if err != nil {
		return nil, err
	}
	return f, lockedNow(k, f)
}
