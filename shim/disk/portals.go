package disk

import (
	"context"
	"net/netip"
	"slices"

	"github.com/nodevirt/nodevirt/imageunpack/iscsi/outage"
	"github.com/nodevirt/nodevirt/shim/domain"
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
				all = append(all, portals(w.attachments.Describe(r))...)
			}
			return all
		},
		FirstUID: w.firstUID, LastUID: w.lastUID, Patience: w.patience, Logger: w.log,
	})
}

// LimitReach lets the processes of VMs that may run reach the portals of their disks,
// and no other address. If keepOthers is set, there may be VMs without a record: they
// keep what an earlier shim allowed them.
func (w *Keeper) LimitReach(ctx context.Context, running []record.Container, keepOthers bool) error {
	allowed := map[uint32][]netip.AddrPort{}
	for _, r := range running {
		allowed[r.Domain.UID] = reachable(w.attachments.Describe(r))
	}
	return w.reach.Restore(ctx, allowed, func(uid uint32) bool {
		_, known := allowed[uid]
		return known || keepOthers
	})
}

// WatchReach restores the limits of VMs' reach, until ctx ends, when another program
// has removed them.
func (w *Keeper) WatchReach(ctx context.Context) { w.reach.Watch(ctx) }

// portals returns the portals of iSCSI disks.
func portals(disks []domain.Disk) []netip.AddrPort {
	var all []netip.AddrPort
	for _, disk := range disks {
		for _, layer := range disk.Layers {
			if layer.ISCSI != nil && !slices.Contains(all, layer.ISCSI.Portal) {
				all = append(all, layer.ISCSI.Portal)
			}
		}
	}
	return all
}
