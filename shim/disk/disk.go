// Package disk makes the disks of VM containers on the node: what each is made
// of, what it needs while its machine runs, and how it is taken back.
//
// It owns the table of the kinds of disks, and their files in a container's
// folder. What a pod asks for is package vmspec's, images are imageunpack's, the
// XML is domain's; when a disk is made, attached or removed, and the record that
// says so, is package vm's.
package disk

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"sync"

	"github.com/nodevirt/nodevirt/imageunpack"
	"github.com/nodevirt/nodevirt/imageunpack/expand"
	"github.com/nodevirt/nodevirt/imageunpack/rawview"
	"github.com/nodevirt/nodevirt/shim/domain"
	"github.com/nodevirt/nodevirt/shim/record"
	"github.com/nodevirt/nodevirt/shim/vmspec"
)

// Options are what disks are made with. All are needed.
type Options struct {
	Unpacker *imageunpack.Unpacker
	Expander *expand.Expander
	// QemuImg is the path of qemu-img.
	QemuImg string
	// Folder is a container's own; what is in it goes with the container.
	Folder func(id string) string
	ISCSI  ISCSI
	// Shares is the folder of exports and imports.
	Shares string
	// FirstUID and LastUID are the first and the last of the VMs' user ids.
	FirstUID, LastUID uint32
	// Views show overlays as raw files.
	Views rawview.Options
}

// Disks makes and takes back the disks of one node's VM containers. Its methods
// may be called at the same time for different containers.
type Disks struct {
	Options
	views *rawview.Views
	ended chan string // views whose processes ended by themselves

	shares   sync.Mutex // held by who changes exports or imports
	reserved []Export   // that are being made; guarded by shares
	taken    held       // what machines have for themselves
}

// maxEnded bounds how many ends of views nobody has heard of yet. What is lost is
// put back when tgtd or the shim is restarted.
const maxEnded = 1024

// New returns Disks.
func New(o Options) *Disks {
	d := &Disks{Options: o, ended: make(chan string, maxEnded)}
	o.Views.Ended = func(id string) {
		select {
		case d.ended <- id:
		default:
		}
	}
	d.views = rawview.New(o.Views)
	return d
}

// Disk is one drive of a VM container.
type Disk struct {
	// Disk is what the pod asks for.
	vmspec.Disk
	// Content is what the record says of it.
	Content record.Disk
	// VM is the record of its container.
	VM record.Container
	// tell is told how far create is, where that takes time.
	tell func(expand.Progress)
	// standalone is a disk that is no VM's, see [Export].
	standalone bool
}

// kind is how disks of one source and mode come to a machine. All but create
// work from the record alone. What undoes does so from every half-made state,
// and also when there is nothing to undo.
type kind interface {
	// create makes what the disk consists of, at CreateContainer. What is in the
	// container's folder goes with that.
	create(context.Context, Disk) error
	// remove undoes create outside of the container's folder.
	remove(context.Context, Disk) error
	// attach makes, at each start, what the disk needs while its machine runs. The
	// descriptors, by FD group, are the caller's to close, also those that come with
	// an error.
	attach(context.Context, Disk) (map[string][]*os.File, error)
	// detach undoes attach, when no machine runs.
	detach(context.Context, Disk) error
	// describe is the disk in its domain. It opens nothing.
	describe(Disk) domain.Disk
	// writable is the file of the container's own that takes the guest's writes;
	// empty where there is none.
	writable(Disk) string
}

// passive is for kinds that need less than all steps.
type passive struct{}

func (passive) remove(context.Context, Disk) error { return nil }
func (passive) detach(context.Context, Disk) error { return nil }
func (passive) writable(Disk) string               { return "" }

// kind is the table of kinds.
func (d *Disks) kind(k Disk) kind {
	switch {
	case k.Source == vmspec.SourceSeed:
		return seedDisk{Disks: d}
	case k.Source == vmspec.SourceImport:
		return imported{Disks: d}
	case k.Mode == vmspec.ModeISCSI:
		return overISCSI{Disks: d}
	case k.Source == vmspec.SourceClaim:
		return claim{d}
	case k.Source == vmspec.SourceEmpty:
		return empty{Disks: d}
	case k.ReadOnly && (k.Mode == vmspec.ModeFile || k.image().Format == imageunpack.Raw):
		return readOnly{Disks: d}
	case k.Mode == vmspec.ModeRaw:
		return raw{Disks: d}
	}
	return overlay{Disks: d}
}

// of are the disks of a container, in the order of its spec.
func of(r record.Container) []Disk {
	all := make([]Disk, 0, len(r.Spec.Disks))
	for _, d := range r.Spec.Disks {
		all = append(all, Disk{Disk: d, Content: r.Disks[d.Name], VM: r})
	}
	return all
}

// TakeTime tells whether Create may take longer than a call does.
func (d *Disks) TakeTime(r record.Container) bool {
	return slices.ContainsFunc(r.Spec.Disks, func(k vmspec.Disk) bool {
		return k.Mode == vmspec.ModeRaw || k.Mode == vmspec.ModeISCSI && d.Expander.Reflink() || k.Origin != ""
	})
}

// Create makes the disks of a container whose folder and record are there. What
// it leaves after an error is Remove's to take back. Tell is told, until Create
// returns, how far a disk is of which that takes time.
func (d *Disks) Create(ctx context.Context, r record.Container, tell func(disk string, p expand.Progress)) error {
	for _, k := range of(r) {
		k.tell = func(p expand.Progress) { tell(k.Name, p) }
		if err := d.kind(k).create(ctx, k); err != nil {
			return k.wrap("make", err)
		}
	}
	return nil
}

// Recover takes note of the disks of a container that was made before this process began.
// What is wrong with one keeps none of the others.
func (d *Disks) Recover(r record.Container) error {
	var errs []error
	for _, k := range of(r) {
		switch {
		case k.Mode == vmspec.ModeRaw || k.Mode == vmspec.ModeISCSI:
			d.Expander.Hold(keyOf(k.image()), raw{Disks: d}.writable(k))
		case !mayRun(r):
		case k.Source == vmspec.SourceClaim:
			errs = append(errs, k.wrap("lock", claim{d}.recover(k)))
		case k.Source == vmspec.SourceImport:
			errs = append(errs, k.wrap("lock", imported{Disks: d}.take(k)))
		}
	}
	return errors.Join(errs...)
}

// mayRun tells whether a machine runs, as far as is known before libvirtd was asked.
func mayRun(r record.Container) bool {
	return r.State == record.Running || r.State == record.Starting || r.State == record.Exited && r.Unclean
}

// Remove takes back what Create made outside of the container's folder.
func (d *Disks) Remove(ctx context.Context, r record.Container) error {
	var errs []error
	for _, k := range slices.Backward(of(r)) {
		errs = append(errs, k.wrap("remove", d.kind(k).remove(ctx, k)))
	}
	return errors.Join(errs...)
}

// Attach makes what the disks need while their machine runs, and opens the files
// of each FD group that the domain's XML names. They are the caller's to close,
// also those that come with an error; [Disks.Detach] takes back the rest.
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

// Detach takes back what Attach made.
func (d *Disks) Detach(ctx context.Context, r record.Container) error {
	var errs []error
	for _, k := range slices.Backward(of(r)) {
		errs = append(errs, k.wrap("detach", d.kind(k).detach(ctx, k)))
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

// Writable returns the files of the container's own that take its guest's writes.
func (d *Disks) Writable(r record.Container) []string {
	var all []string
	for _, k := range of(r) {
		if path := d.kind(k).writable(k); path != "" {
			all = append(all, path)
		}
	}
	return all
}

// path is a file in the folder of the disk's container.
func (d *Disks) path(k Disk, name string) string {
	if k.standalone {
		return filepath.Join(d.Shares, "exports", k.VM.ID, name)
	}
	return filepath.Join(d.Folder(k.VM.ID), name)
}

// image is the registry disk below; without one, a value that opens nothing.
func (k Disk) image() imageunpack.Disk {
	if k.Content.Image == nil {
		return imageunpack.Disk{}
	}
	return *k.Content.Image
}

// wrap says which disk an error is about.
func (k Disk) wrap(op string, err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("%s disk %q: %w", op, k.Name, err)
}

// group names an FD group of the disk: the layer that the guest writes is "top",
// the one below it "base".
func (k Disk) group(layer string) string { return k.Name + "-" + layer }
