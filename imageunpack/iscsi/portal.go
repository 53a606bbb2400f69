package iscsi

import (
	"context"
	"errors"
	"fmt"
	"slices"
)

// openPortal makes tgtd listen at the portal, and nowhere else. If tgtd can't listen at a portal in its
// arguments, it listens on all addresses of the node instead. So it is started with an unused portal on
// loopback and gets the real portal here, where the caller sees its error.
func (d *Daemon) openPortal(ctx context.Context) error {
	text, err := d.call(ctx, request{Mode: modePortal, Op: opShow}, "")
	if err != nil {
		return fmt.Errorf("list portals: %w", err)
	}
	want := d.opts.Portal.String()
	have := parsePortals(text)
	if !slices.Contains(have, want) {
		_, err := d.call(ctx, request{Mode: modePortal, Op: opNew}, portalText(want))
		if errors.Is(err, code(17)) {
			return fmt.Errorf("listen at %s: %w, or the address is not this node's: "+
				"end what listens there, or set iscsi.address and iscsi.port in the shim's config", want, ErrPortTaken)
		}
		if err != nil {
			return fmt.Errorf("listen at %s: %w", want, err)
		}
	}
	for _, other := range have {
		if other == want {
			continue
		}
		if _, err := d.call(ctx, request{Mode: modePortal, Op: opDelete}, portalText(other)); err != nil {
			return fmt.Errorf("stop listening at %s: %w", other, err)
		}
	}
	return nil
}

func portalText(address string) string { return "portalOps portal=" + address + "," }
