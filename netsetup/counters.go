package netsetup

import (
	"cmp"
	"errors"
	"fmt"

	"github.com/vishvananda/netlink"
)

// Counters are the traffic of one card, from the guest's point of view: the guest
// received what the tap sent.
type Counters struct {
	RxBytes, RxPackets, RxErrors, RxDropped uint64
	TxBytes, TxPackets, TxErrors, TxDropped uint64
}

// Counters returns the counters of a guest's cards, in the Plan's order. It reads them from the
// taps in the pod's namespace. They are zero for a card without a tap.
func (s *Setup) Counters(p Plan) ([]Counters, error) {
	all := make([]Counters, len(p.NICs))
	err := withinLink(p.Netns, func(h *netlink.Handle) error {
		for i, n := range p.NICs {
			link, err := h.LinkByName(cmp.Or(n.Device, n.Tap))
			if errors.As(err, new(netlink.LinkNotFoundError)) {
				continue
			}
			if err != nil {
				return fmt.Errorf("find tap %s: %w", cmp.Or(n.Device, n.Tap), err)
			}
			if c := link.Attrs().Statistics; c != nil {
				all[i] = Counters{
					RxBytes: c.TxBytes, RxPackets: c.TxPackets, RxErrors: c.TxErrors, RxDropped: c.TxDropped,
					TxBytes: c.RxBytes, TxPackets: c.RxPackets, TxErrors: c.RxErrors, TxDropped: c.RxDropped,
				}
			}
		}
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("read network counters of VM %s: %w", p.ID, err)
	}
	return all, nil
}
