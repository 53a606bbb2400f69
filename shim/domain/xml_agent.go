package domain

import "libvirt.org/go/libvirtxml"

const (
	// agentPort is the name by which a guest agent finds its port.
	agentPort = "org.qemu.guest_agent.0"
	// agentChannel is the port's name as far as libvirt is concerned. Under its
	// real name libvirt would take the socket for itself.
	agentChannel = "io.nodevirt.agent.0"
	agentAlias   = "ua-agent"
)

// agent is the channel of the QEMU guest agent.
func agent(m Machine) libvirtxml.DomainChannel {
	return libvirtxml.DomainChannel{
		Source: &libvirtxml.DomainChardevSource{
			UNIX: &libvirtxml.DomainChardevSourceUNIX{Mode: "bind", Path: m.AgentSocket},
		},
		Target: &libvirtxml.DomainChannelTarget{
			VirtIO: &libvirtxml.DomainChannelTargetVirtIO{Name: agentChannel},
		},
		Alias: &libvirtxml.DomainAlias{Name: agentAlias},
	}
}

// agentOverride gives the agent's port in the guest its real name.
func agentOverride() *libvirtxml.DomainQEMUOverride {
	return &libvirtxml.DomainQEMUOverride{Devices: []libvirtxml.DomainQEMUOverrideDevice{{
		Alias: agentAlias,
		Frontend: libvirtxml.DomainQEMUOverrideFrontend{Properties: []libvirtxml.DomainQEMUOverrideProperty{
			{Name: "name", Type: "string", Value: agentPort},
		}},
	}}}
}
