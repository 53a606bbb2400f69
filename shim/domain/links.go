package domain

import (
	"context"
	"fmt"

	"libvirt.org/go/libvirt"
	"libvirt.org/go/libvirtxml"

	"github.com/nodevirt/nodevirt/shim/vmspec"
)

// SetLinks gives the network cards of a running domain links, or takes them away: the guest sees the carrier
// come and go. It leaves a card alone that has the state already, and one that the domain does not have: a hook
// sidecar may have removed it.
func (h *Hotplug) SetLinks(ctx context.Context, uuid string, cards []vmspec.Interface) error {
	down := map[string]bool{}
	for _, c := range cards {
		down[nicAlias(c)] = c.Unplugged
	}
	return do(ctx, h.conn, "set the links of", uuid, func(dom *libvirt.Domain) error {
		d, err := liveXML(dom)
		if err != nil {
			return err
		}
		for _, i := range d.Devices.Interfaces {
			if i.Alias == nil {
				continue
			}
			wanted, known := down[i.Alias.Name]
			if has := i.Link != nil && i.Link.State == "down"; !known || has == wanted {
				continue
			}
			i.Link = &libvirtxml.DomainInterfaceLink{State: "up"}
			if wanted {
				i.Link.State = "down"
			}
			text, err := i.Marshal()
			if err != nil {
				return err
			}
			if err := dom.UpdateDeviceFlags(text, libvirt.DOMAIN_DEVICE_MODIFY_LIVE); err != nil {
				return fmt.Errorf("network card %s: %w", i.Alias.Name, err)
			}
		}
		return nil
	})
}
