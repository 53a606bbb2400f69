package disk

import (
	"context"
	"net/netip"
	"os"

	"github.com/nodevirt/nodevirt/imageunpack"
	"github.com/nodevirt/nodevirt/imageunpack/expand"
	"github.com/nodevirt/nodevirt/imageunpack/iscsi"
	"github.com/nodevirt/nodevirt/imageunpack/persist"
	"github.com/nodevirt/nodevirt/imageunpack/rawview"
	"github.com/nodevirt/nodevirt/shim/domain"
	"github.com/nodevirt/nodevirt/shim/record"
)

// unpacker is the source of images, as [imageunpack.Unpacker] is.
type unpacker interface {
	imageHolder
	imageOpener
	overlayMaker
	volumeOverlayMaker
	blankMaker
	// Owners returns those that hold an image.
	Owners(ctx context.Context) ([]string, error)
}

// imageHolder keeps images on the node for their owners.
type imageHolder interface {
	Acquire(ctx context.Context, owner, image, path string) (imageunpack.Disk, error)
	Release(ctx context.Context, owner string) error
}

// imageOpener opens files of images.
type imageOpener interface {
	Open(ctx context.Context, d imageunpack.Disk, name string) (*os.File, error)
}

// overlayMaker makes qcow2 files above the disks of images.
type overlayMaker interface {
	Overlay(d imageunpack.Disk, path string) error
}

// volumeOverlayMaker makes qcow2 files above volumes.
type volumeOverlayMaker interface {
	VolumeOverlay(size int64, path string) error
}

// blankMaker makes empty qcow2 files.
type blankMaker interface {
	Blank(size int64, path string) error
}

// expander makes raw files, as [expand.Expander] does.
type expander interface {
	Expand(ctx context.Context, s expand.Source, path string, progress func(expand.Progress)) error
	Hold(k expand.Key, path string)
	Reflink() bool
	Turns() *expand.Turns
}

// groups changes the cgroups of VMs, as package resources' Groups does.
type groups interface {
	Create(r record.Container) error
	Add(r record.Container, pid int) error
}

// joining returns a function that moves a process to the cgroup of a disk's VM, which it makes. Undoing
// the VM's creation, or its start, removes the cgroup.
func joining(g groups, k Disk) func(pid int) error {
	if k.standalone {
		return nil
	}
	return func(pid int) error {
		if err := g.Create(k.VM); err != nil {
			return err
		}
		return g.Add(k.VM, pid)
	}
}

// targets serves files over iSCSI, as [iscsi.Daemon] does.
type targets interface {
	Serve(ctx context.Context, t iscsi.Target) error
	Remove(ctx context.Context, a iscsi.Access) error
	Break(ctx context.Context, name string) error
	Hold(ctx context.Context, a iscsi.Access) error
	List(ctx context.Context) ([]iscsi.Status, error)
	Portal() netip.AddrPort
}

// daemon is the node's tgtd, as [iscsi.Daemon] is.
type daemon interface {
	targets
	// Watch calls back whenever the daemon has started.
	Watch(ctx context.Context, back func(context.Context))
}

// limiter limits which addresses VMs' processes reach, as [reach.Filter] does.
type limiter interface {
	Restore(ctx context.Context, allowed map[uint32][]netip.AddrPort, keep func(uid uint32) bool) error
	Allow(ctx context.Context, uid uint32, portals []netip.AddrPort) error
	Watch(ctx context.Context)
}

// secrets are libvirtd's.
type secrets interface {
	SetSecret(ctx context.Context, s domain.Secret, value string) error
	RemoveSecret(ctx context.Context, uuid string) error
}

// views shows overlays as raw files, as [rawview.Views] does.
type views interface {
	Show(ctx context.Context, view rawview.View, base *os.File) (pid int, err error)
	Hide(ctx context.Context, id string) error
	Process(id string) (int, error)
	List() ([]string, error)
}

// persister writes the disk of an image to a volume, as [persist.Write] does.
type persister interface {
	write(ctx context.Context, volume *os.File, from persist.Source, progress func(done float64)) error
}

// qemuPersister writes with qemu-img.
type qemuPersister struct{ tool expand.Tool }

func (p qemuPersister) write(ctx context.Context, volume *os.File, from persist.Source, progress func(done float64)) error {
	from.Tool = p.tool
	return persist.Write(ctx, volume, from, progress)
}
