package domain

import (
	"context"
	"fmt"
	"strings"

	"libvirt.org/go/libvirt"
	"libvirt.org/go/libvirtxml"

	"github.com/nodevirt/nodevirt/shim/vmspec"
)

// AttachCard attaches a network card to a running domain. Its tap is as at a start: see [NIC]. After an error,
// also [ErrUnavailable] and [ErrNoCardPort], [Hotplug.Cards] says whether the card is attached. The error is
// [ErrNotRunning] if the domain is shut off.
func (h *Hotplug) AttachCard(ctx context.Context, uuid string, spec vmspec.Interface, n NIC) error {
	const op = "attach a network card to"
	text, err := cardXML(spec, n)
	if err != nil {
		return &failure{op: op, object: "domain " + uuid, detail: err}
	}
	return do(ctx, h.conn, op, uuid, func(dom *libvirt.Domain) error {
		has, err := cardsOf(dom)
		if err != nil {
			return err
		}
		for _, i := range has {
			if i.Alias != nil && i.Alias.Name == nicAlias(spec) {
				return fmt.Errorf("network card %s already exists", spec.Name)
			}
			if i.MAC != nil && strings.EqualFold(i.MAC.Address, n.MAC.String()) {
				return fmt.Errorf("MAC address %s is another card's: choose another one", n.MAC)
			}
		}
		err = dom.AttachDeviceFlags(text, libvirt.DOMAIN_DEVICE_MODIFY_LIVE)
		if err != nil && strings.Contains(err.Error(), noSlots) {
			err = fmt.Errorf("%w: %w", ErrNoCardPort, err)
		}
		return err
	})
}

func cardXML(spec vmspec.Interface, n NIC) (string, error) {
	card := nic(spec, n)
	var err error
	if card.Address, err = pciAddress(spec.PCI); err != nil {
		return "", fmt.Errorf("network card %s: %w", spec.Name, err)
	}
	return card.Marshal()
}

// RequestCard asks the guest to release a network card by its name in the spec. It returns before the guest
// reacts, and the guest may ignore the request. A card that is not attached is no error.
func (h *Hotplug) RequestCard(ctx context.Context, uuid, name string) error {
	return do(ctx, h.conn, "detach a network card from", uuid, func(dom *libvirt.Domain) error {
		all, err := cardsOf(dom)
		if err != nil {
			return err
		}
		for _, i := range all {
			if i.Alias == nil || i.Alias.Name != NICAlias(name) {
				continue
			}
			return requestRelease(dom, &i)
		}
		return nil
	})
}

// Cards returns the names in the spec of a running domain's network cards.
func (h *Hotplug) Cards(ctx context.Context, uuid string) (map[string]bool, error) {
	return onDomain(ctx, h.conn, "list the network cards of", uuid, func(dom *libvirt.Domain) (map[string]bool, error) {
		cards, err := cardsOf(dom)
		if err != nil {
			return nil, err
		}
		all := map[string]bool{}
		for _, i := range cards {
			if i.Alias == nil {
				continue
			}
			if name, is := strings.CutPrefix(i.Alias.Name, NICAlias("")); is {
				all[name] = true
			}
		}
		return all, nil
	})
}

func cardsOf(dom *libvirt.Domain) ([]libvirtxml.DomainInterface, error) {
	d, err := liveXML(dom)
	if err != nil {
		return nil, err
	}
	return d.Devices.Interfaces, nil
}
