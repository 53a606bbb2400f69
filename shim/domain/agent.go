package domain

import (
	"context"
	"encoding/json"
	"fmt"

	"libvirt.org/go/libvirt"
	"libvirt.org/go/libvirtxml"
)

// portEvent is QEMU's event for a port that a guest opens or closes; see QEMU's
// QMP reference. libvirt's own event for the agent's port requires a name which
// the port must not have here, see [XML].
const portEvent = "VSERPORT_CHANGE"

func portCallback(send func(Event)) libvirt.DomainQemuMonitorEventCallback {
	return func(_ *libvirt.Connect, dom *libvirt.Domain, e *libvirt.DomainQemuMonitorEvent) {
		var port struct {
			ID   string `json:"id"`
			Open bool   `json:"open"`
		}
		uuid, err := dom.GetUUIDString() // reads the handle, without a call
		if err != nil || json.Unmarshal([]byte(e.Details), &port) != nil {
			send(Event{Kind: EventResync})
			return
		}
		if port.ID != agentAlias {
			return
		}
		kind := EventAgentDisconnected
		if port.Open {
			kind = EventAgentConnected
		}
		send(Event{UUID: uuid, Kind: kind})
	}
}

// AgentConnected reports whether a running domain's guest has the agent's port open.
func (o *Observer) AgentConnected(ctx context.Context, uuid string) (bool, error) {
	return onDomain(ctx, o.conn, "find the agent of", uuid, func(dom *libvirt.Domain) (bool, error) {
		text, err := dom.GetXMLDesc(0)
		if err != nil {
			return false, err
		}
		var x libvirtxml.Domain
		if err := x.Unmarshal(text); err != nil {
			return false, fmt.Errorf("decode the domain: %w", err)
		}
		for _, c := range x.Devices.Channels {
			if c.Alias != nil && c.Alias.Name == agentAlias && c.Target != nil && c.Target.VirtIO != nil {
				return c.Target.VirtIO.State == "connected", nil
			}
		}
		return false, nil
	})
}
