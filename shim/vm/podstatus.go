package vm

import (
	"errors"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/nodevirt/nodevirt/shim/agent"
	"github.com/nodevirt/nodevirt/shim/domain"
	"github.com/nodevirt/nodevirt/shim/podstatus"
	"github.com/nodevirt/nodevirt/shim/podstatus/condition"
	"github.com/nodevirt/nodevirt/shim/record"
)

// sourceAnnotation is the kubelet's, on each pod that it runs; pods of the API
// server have sourceAPI. Others have no status that could be written.
const (
	sourceAnnotation = "kubernetes.io/config.source"
	sourceAPI        = "api"
)

func statusOf(p *runtimeapi.PodSandboxConfig) (_ podstatus.Pod, ok bool) {
	meta := p.GetMetadata()
	return podstatus.Pod{
		Namespace: meta.GetNamespace(), Name: meta.GetName(), UID: meta.GetUid(), Attempt: meta.GetAttempt(),
	}, p.GetAnnotations()[sourceAnnotation] == sourceAPI && meta.GetUid() != ""
}

// tell has the pod's status say what is known of a machine now. It waits for
// nobody. Of a pod's machines the latest counts.
func (m *Manager) tell(c *machine) {
	r := c.record()
	pod, ok := statusOf(r.Sandbox.Value)
	if !ok || r.State != record.Exited && (r.State != record.Running || c.paused.Load() == nil) {
		return
	}
	m.mu.RLock()
	defer m.mu.RUnlock()
	if _, there := m.sandboxes[r.SandboxID]; !there || !m.isLatest(r) {
		return
	}
	if c.recovered {
		m.PodStatus.TellAgain(pod, m.facts(c, r))
		return
	}
	m.PodStatus.Tell(pod, m.facts(c, r))
}

// isLatest tells whether a sandbox has no newer machine. The caller holds m.mu.
func (m *Manager) isLatest(r record.Container) bool {
	for _, c := range m.machines {
		if o := c.record(); o.SandboxID == r.SandboxID && o.CreatedAt.After(r.CreatedAt) {
			return false
		}
	}
	return true
}

// notePaused takes over whether a guest's code runs.
func (m *Manager) notePaused(c *machine, s domain.State) {
	reason := domain.ReasonNone
	if s.Status == domain.StatusPaused && s.Reason != domain.ReasonShutdown {
		reason = s.Reason
	}
	c.paused.Store(&reason)
	m.tell(c)
}

func (c *machine) isPaused() bool {
	p := c.paused.Load()
	return p != nil && *p != domain.ReasonNone
}

// tellRefused has the pod's status say why there is no container: the kubelet
// tells that in an event, which passes.
func (m *Manager) tellRefused(sandboxID string, config *runtimeapi.PodSandboxConfig, err error) {
	pod, ok := statusOf(config)
	if !ok || errors.Is(err, ErrNotVM) || errors.Is(err, ErrExists) {
		return
	}
	m.mu.RLock()
	defer m.mu.RUnlock()
	if _, there := m.sandboxes[sandboxID]; there {
		m.PodStatus.Tell(pod, podstatus.Facts{Reason: condition.ReasonCreateFailed, Message: err.Error()})
	}
}

// facts are what the pod's status is to say of a machine.
func (m *Manager) facts(c *machine, r record.Container) podstatus.Facts {
	if r.State == record.Exited {
		f := podstatus.Facts{Reason: r.Reason, Message: r.Message, Since: r.FinishedAt}
		if r.Reason == reasonStartError {
			f.Reason = condition.ReasonStartFailed
		}
		return f
	}
	f := podstatus.Facts{Ready: true, Reason: condition.ReasonRunning, Since: r.StartedAt, Machine: &podstatus.Machine{}}
	if paused := pausedReason(*c.paused.Load()); paused != "" {
		f.Ready, f.Reason, f.Machine.Paused = false, paused, paused
	}
	s := m.agent(c).State()
	switch s.Presence {
	case agent.Present:
		f.Machine.Agent = new(true)
		f.Machine.Guest = guest(s, r)
	case agent.Absent:
		f.Machine.Agent = new(false)
	}
	return f
}

// pausedText is why a machine that runs stands still, in the words of conditions.
func (c *machine) pausedText() string {
	p := c.paused.Load()
	if p == nil || c.record().State != record.Running {
		return ""
	}
	return pausedReason(*p)
}

// pausedReason is a domain's reason in the words of conditions.
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

// guest is what an agent told, nil where it told nothing. Of interfaces those
// are of interest that are cards of the VM: others come and go with the guest's
// own containers.
func guest(s agent.State, r record.Container) *condition.Guest {
	if s.Updated.IsZero() || s.Problem != "" && s.Version == "" {
		return nil
	}
	g := &condition.Guest{AgentVersion: s.Version, Hostname: s.Hostname}
	if o := s.OS; o != nil {
		g.OS = &condition.OS{ID: o.ID, PrettyName: o.Name, VersionID: o.Version, Kernel: o.Kernel, Machine: o.Machine}
	}
	if r.Network == nil {
		return g
	}
	cards := map[string]bool{}
	for _, n := range r.Network.NICs {
		cards[n.GuestMAC.String()] = true
	}
	for _, i := range s.Interfaces {
		if !cards[i.MAC] {
			continue
		}
		shown := condition.Interface{Name: i.Name, MAC: i.MAC}
		for _, a := range i.Addresses {
			if !a.Addr().IsLinkLocalUnicast() {
				shown.IPs = append(shown.IPs, a.Addr().String())
			}
		}
		g.Interfaces = append(g.Interfaces, shown)
	}
	return g
}
