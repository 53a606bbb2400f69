package domain

import "libvirt.org/go/libvirtxml"

const (
	// agentPort is the name of the port in the guest, by which the agent finds it.
	agentPort = "org.qemu.guest_agent.0"
	// agentChannel is the port's name in libvirt. With the real name libvirt would
	// use the socket itself.
	agentChannel = "io.nodevirt.agent.0"
	agentAlias   = "ua-agent"
)

// agent returns the channel of the QEMU guest agent.
func agent(desc Description) libvirtxml.DomainChannel {
	return libvirtxml.DomainChannel{
		Source: &libvirtxml.DomainChardevSource{
			UNIX: &libvirtxml.DomainChardevSourceUNIX{Mode: "bind", Path: desc.AgentSocket},
		},
		Target: &libvirtxml.DomainChannelTarget{
			VirtIO: &libvirtxml.DomainChannelTargetVirtIO{Name: agentChannel},
		},
		Alias: &libvirtxml.DomainAlias{Name: agentAlias},
	}
}

// agentOverride sets the port's real name in the guest.
func agentOverride() *libvirtxml.DomainQEMUOverride {
	return &libvirtxml.DomainQEMUOverride{Devices: []libvirtxml.DomainQEMUOverrideDevice{{
		Alias: agentAlias,
		Frontend: libvirtxml.DomainQEMUOverrideFrontend{Properties: []libvirtxml.DomainQEMUOverrideProperty{
			{Name: "name", Type: "string", Value: agentPort},
		}},
	}}}
}
