package disk

import (
	"context"
	"log/slog"
	"slices"
	"sync"

	"github.com/nodevirt/nodevirt/imageunpack/iscsi"
)

// Exports are the registry disks that this node serves to others.
type Exports struct {
	images  exportImages
	served  server
	targets targets
	files   exportFiles
	lastUID uint32 // the highest user id of VMs
	log     *slog.Logger

	mu     sync.Mutex // held while exports change
	making []Export   // exports that are being made; guarded by mu
}

// exportImages holds the images of exports, as [imageunpack.Unpacker] does.
type exportImages interface {
	imageHolder
	Owners(ctx context.Context) ([]string, error)
}

// server makes disks and serves them over iSCSI; overISCSI.
type server interface {
	create(context.Context, Disk) error
	writable(Disk) string
	serve(context.Context, Disk) error
	unserve(context.Context, Disk) error
	breakOff(context.Context, Disk) error
	access(Disk) iscsi.Access
}

// List returns all exports; with an error, those whose records can be read.
func (x *Exports) List() ([]Export, error) { return x.files.list() }

// Users returns the initiators that are logged in. Served is false for an export that
// tgtd does not serve.
func (x *Exports) Users(ctx context.Context, e Export) (users []string, served bool, err error) {
	all, err := x.targets.List(ctx)
	if err != nil {
		return nil, false, err
	}
	for _, t := range all {
		if t.Name == x.Target(e) {
			return t.Initiators, true, nil
		}
	}
	return nil, false, nil
}

// Target returns the iSCSI name of an export.
func (x *Exports) Target(e Export) string { return x.served.access(e.disk()).Name }

// Portal returns the address of all exports.
func (x *Exports) Portal() string { return x.targets.Portal().String() }

// connection returns how another node uses an export.
func (x *Exports) connection(e Export) Connection {
	a := x.served.access(e.disk())
	return Connection{
		Name: e.Name, Portal: x.Portal(), Target: a.Name, LUN: iscsi.LUN,
		Initiator: a.Initiator, User: a.User, Password: a.Password.Reveal(), Size: e.Disk.VirtualSize, Shareable: e.Shareable,
	}
}

// freeUID returns a user id that no export has, counted down from the end of the range.
// VMs' are counted up from its start.
func (x *Exports) freeUID(all []Export) uint32 {
	uid := x.lastUID
	for slices.ContainsFunc(all, func(e Export) bool { return e.UID == uid }) {
		uid--
	}
	return uid
}
