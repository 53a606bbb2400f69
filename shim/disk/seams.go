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
)

// images holds the disks of images, as [imageunpack.Unpacker] does.
type images interface {
	Acquire(ctx context.Context, owner, image, path string) (imageunpack.Disk, error)
	Release(ctx context.Context, owner string) error
	Owners(ctx context.Context) ([]string, error)
	Open(ctx context.Context, d imageunpack.Disk, name string) (*os.File, error)
}

// overlays makes qcow2 files, as [imageunpack.Unpacker] does.
type overlays interface {
	Overlay(d imageunpack.Disk, path string) error
	Blank(size int64, path string) error
}

type unpacker interface {
	images
	overlays
}

// expander makes raw files, as [expand.Expander] does.
type expander interface {
	Expand(ctx context.Context, s expand.Source, path string, tell func(expand.Progress)) error
	Hold(k expand.Key, path string)
	Reflink() bool
}

// targets serves files over iSCSI, as [iscsi.Daemon] does.
type targets interface {
	Serve(ctx context.Context, t iscsi.Target) error
	Remove(ctx context.Context, a iscsi.Access) error
	Break(ctx context.Context, name string) error
	Hold(ctx context.Context, a iscsi.Access) error
	List(ctx context.Context) ([]iscsi.Status, error)
}

// daemon is the node's tgtd, as [iscsi.Daemon] is.
type daemon interface {
	targets
	Portal() netip.AddrPort
	Watch(ctx context.Context, back func(context.Context))
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

// qemuPersister writes with the qemu-img at a path.
type qemuPersister struct{ qemuImg string }

func (p qemuPersister) write(ctx context.Context, volume *os.File, from persist.Source, progress func(done float64)) error {
	from.QemuImg = p.qemuImg
	return persist.Write(ctx, volume, from, progress)
}
