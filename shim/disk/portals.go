package disk

import (
	"context"
	"net/netip"
	"slices"

	"github.com/nodevirt/nodevirt/imageunpack/iscsi/outage"
	"github.com/nodevirt/nodevirt/shim/record"
)

// WatchPortals makes iSCSI disks of VMs fail while their portal has not answered for
// [ISCSI].Patience. It returns when ctx ends. It calls running now and then for the
// containers of VMs that run; running must not block.
func (w *Keeper) WatchPortals(ctx context.Context, running func() []record.Container) {
	if w.patience == 0 {
		return
	}
	outage.Watch(ctx, outage.Options{
		Portals: func() []netip.AddrPort {
			var all []netip.AddrPort
			for _, r := range running() {
				all = append(all, w.portals(r)...)
			}
			return all
		},
		FirstUID: w.firstUID, LastUID: w.lastUID, Patience: w.patience, Logger: w.log,
	})
}

// portals returns the portals of a container's iSCSI disks.
func (w *Keeper) portals(r record.Container) []netip.AddrPort {
	var all []netip.AddrPort
	for _, disk := range w.attachments.Describe(r) {
		for _, layer := range disk.Layers {
			if layer.ISCSI != nil && !slices.Contains(all, layer.ISCSI.Portal) {
				all = append(all, layer.ISCSI.Portal)
			}
		}
	}
	return all
}
