package disk

import (
	"context"
	"os"

	"github.com/nodevirt/nodevirt/imageunpack"
	"github.com/nodevirt/nodevirt/shim/domain"
	"github.com/nodevirt/nodevirt/shim/record"
	"github.com/nodevirt/nodevirt/shim/seed"
	"github.com/nodevirt/nodevirt/shim/vmspec"
)

// content acquires what a disk is made of, before there is a record of the VM.
type content interface {
	// acquire returns the content of a disk. Own is the disk of the container's
	// image, nil if the VM does not use it.
	acquire(ctx context.Context, k Disk, own *imageunpack.Disk) (record.Disk, error)
	// release undoes acquire, from every half-made state.
	release(context.Context, Disk) error
}

// kind makes a disk of its content and attaches the disk to its VM. All methods but
// create work from the record alone. Methods that undo something do so from every
// half-made state, and also if there is nothing to undo. [passive] has those that a
// kind does not need.
type kind interface {
	// takesTime reports whether create may take longer than a call does.
	takesTime(Disk) bool
	// create makes the disk, at CreateContainer. Files in the container's folder are
	// removed with the folder.
	create(context.Context, Disk) error
	// remove undoes create outside of the container's folder.
	remove(context.Context, Disk) error
	// recover finds again, when the shim starts, what the disk holds in the memory of
	// the shim. Active says that the VM may run.
	recover(k Disk, active bool) error

	// attach makes, at each start, what the disk needs while its VM runs. The caller
	// closes the descriptors, by FD group, also those that come with an error.
	attach(context.Context, Disk) (map[string][]*os.File, error)
	// detach undoes attach, when the VM does not run.
	detach(context.Context, Disk) error
	// restore restores the parts of attach that a running VM has lost because a
	// process ended.
	restore(context.Context, Disk) error
	// describe returns the disk for its domain. It opens nothing.
	describe(Disk) domain.Disk
	// writable returns the container's own file that takes the guest's writes; empty
	// if there is none.
	writable(Disk) string
}

// passive is for kinds that do not need all methods.
type passive struct{}

func (passive) takesTime(Disk) bool                 { return false }
func (passive) remove(context.Context, Disk) error  { return nil }
func (passive) recover(Disk, bool) error            { return nil }
func (passive) detach(context.Context, Disk) error  { return nil }
func (passive) restore(context.Context, Disk) error { return nil }
func (passive) writable(Disk) string                { return "" }

// row is what the node does with one source of disks.
type row struct {
	content content
	kind    func(Disk) kind
}

// kinds is the node's half of the table of volume kinds; [vmspec.VolumeKinds] is the
// other half.
type kinds map[vmspec.Source]row

func newKinds(o Options, files folders, registry registry, imports *Imports, pvc pvc) kinds {
	always := func(k kind) func(Disk) kind { return func(Disk) kind { return k } }
	overNetwork := row{
		networkContent{on: o.Network, asker: o.ask, ceph: o.CephNetworks},
		always(networkDisk{reserved: pvc.block.reserved, secrets: o.ISCSI.Secrets, asker: o.ask, config: o.CephConfig}),
	}
	written := row{nothing{}, always(filesDisk(files))}
	return kinds{
		vmspec.SourceImage:  {ownImage{}, registry.kind},
		vmspec.SourceVolume: {mountedImage{o.Unpacker}, registry.kind},
		vmspec.SourceSeed:   {nothing{}, always(seedDisk(files, seed.NoCloud(), o.Hooks))},
		vmspec.SourceEmpty:  {nothing{}, always(empty{blank: o.Unpacker, files: files})},
		vmspec.SourceImport: {importContent{imports: imports}, always(imported{imports: imports, reserved: pvc.block.reserved, secrets: o.ISCSI.Secrets})},
		vmspec.SourcePVC:    {nothing{}, pvc.kind},
		vmspec.SourceDrive:  {nothing{}, always(drive{})},
		vmspec.SourceISCSI:  overNetwork,
		vmspec.SourceRBD:    overNetwork,

		vmspec.SourceHostDisk:  {nothing{}, always(hostDisk{pvc.file})},
		vmspec.SourceEphemeral: {nothing{}, always(ephemeral{pvc: pvc, overlays: o.Unpacker, files: files})},

		vmspec.SourceConfigDrive:    {nothing{}, always(seedDisk(files, seed.ConfigDrive(), o.Hooks))},
		vmspec.SourceConfigMap:      written,
		vmspec.SourceSecret:         written,
		vmspec.SourceDownwardAPI:    written,
		vmspec.SourceServiceAccount: written,
		vmspec.SourceSysprep:        written,
		vmspec.SourceMetrics:        {nothing{}, always(metricsDisk(files))},
	}
}

// of returns how a disk is made and attached.
func (t kinds) of(k Disk) kind { return t[k.Source].kind(k) }

// content returns what a disk is made of.
func (t kinds) content(k Disk) content { return t[k.Begins()].content }
