package report

import (
	"github.com/nodevirt/nodevirt/shim/agent"
	"github.com/nodevirt/nodevirt/shim/domain"
	"github.com/nodevirt/nodevirt/shim/podstatus"
	"github.com/nodevirt/nodevirt/shim/podstatus/condition"
	"github.com/nodevirt/nodevirt/shim/record"
	"github.com/nodevirt/nodevirt/shim/vm/table"
)

// ReasonStartError is containerd's reason of a container whose start failed.
const ReasonStartError = "StartError"

// facts are what the pod's status says of a VM.
func (c *Conditions) facts(v *table.VM, r record.Container) podstatus.Facts {
	f := c.state(v, r)
	if r.Fork != nil && r.Fork.Reason != "" {
		f.Identity = &podstatus.Identity{Reason: r.Fork.Reason, Message: r.Fork.Message}
	}
	return f
}

// state returns the facts of all VMs, forks or not.
func (c *Conditions) state(v *table.VM, r record.Container) podstatus.Facts {
	if r.State == record.Exited {
		f := podstatus.Facts{Reason: r.Reason, Message: r.Message, Since: r.FinishedAt, VSOCK: r.Spec.VSOCK}
		if r.Reason == ReasonStartError {
			f.Reason = condition.ReasonStartFailed
		}
		if len(r.Spec.Credentials) > 0 {
			f.Credentials = &podstatus.Credentials{Reason: condition.ReasonAgentDisconnected}
		}
		return f
	}
	f := podstatus.Facts{
		Ready: true, Reason: condition.ReasonRunning, Since: r.StartedAt, VSOCK: r.Spec.VSOCK,
		Machine:     &podstatus.Machine{Type: r.Domain.Machine, VSOCKCID: r.VSOCKCID(), Stays: c.stays(r)},
		Credentials: c.agents.Credentials(v),
	}
	f.Machine.Movable = f.Machine.Stays == ""
	if paused := pausedReason(*c.paused.Of(v).Load()); paused != "" {
		f.Ready, f.Reason, f.Machine.Paused = false, paused, paused
		if message := c.failing.Of(v).Load(); message != nil && paused == condition.ReasonPausedIOError {
			f.Message = *message
		}
		if message := c.unsettled.Of(v).Load(); message != nil && *message != "" {
			f.Reason, f.Machine.Paused, f.Message = condition.ReasonPausedMigration, condition.ReasonPausedMigration, *message
		}
	} else {
		f.Message = c.impairment(v)
	}
	if dispute := v.Dispute(); dispute != "" {
		f.Reason, f.Message = condition.ReasonDisputed, dispute
	}
	s := c.agents.State(v)
	switch s.Presence {
	case agent.Present:
		f.Machine.Agent = new(true)
		f.Machine.Guest = guest(s, r)
	case agent.Absent:
		f.Machine.Agent = new(false)
	}
	return f
}

// pausedReason translates a domain's reason into the words of conditions.
func pausedReason(r domain.Reason) string {
	switch r {
	case domain.ReasonNone:
		return ""
	case domain.ReasonUser:
		return condition.ReasonPausedByUser
	case domain.ReasonIOError:
		return condition.ReasonPausedIOError
	case domain.ReasonMigrated:
		return condition.ReasonPausedMigration
	default:
		return condition.ReasonPausedOther
	}
}

// guest is what an agent reported, nil if it reported nothing. Only interfaces
// that are cards of the VM count: others come and go with the guest's own
// containers.
func guest(s agent.State, r record.Container) *condition.Guest {
	if s.Updated.IsZero() || s.Problem != "" && s.Version == "" {
		return nil
	}
	g := &condition.Guest{AgentVersion: s.Version, Hostname: s.Hostname, Refused: s.Refused, Frozen: s.Frozen}
	if o := s.OS; o != nil {
		g.OS = &condition.OS{ID: o.ID, PrettyName: o.Name, VersionID: o.Version, Kernel: o.Kernel, Machine: o.Machine}
	}
	cards := r.CardsByMAC()
	for _, i := range s.Interfaces {
		card, is := cards[i.MAC]
		if !is {
			continue
		}
		shown := condition.Interface{Card: card, Name: i.Name, MAC: i.MAC}
		for _, a := range i.Addresses {
			if !a.Addr().IsLinkLocalUnicast() {
				shown.IPs = append(shown.IPs, a.Addr().String())
			}
		}
		g.Interfaces = append(g.Interfaces, shown)
	}
	return g
}
