package report

import (
	"errors"
	"fmt"
	"sync/atomic"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/nodevirt/nodevirt/imageunpack"
	"github.com/nodevirt/nodevirt/shim/agent"
	"github.com/nodevirt/nodevirt/shim/domain"
	"github.com/nodevirt/nodevirt/shim/podstatus"
	"github.com/nodevirt/nodevirt/shim/podstatus/condition"
	"github.com/nodevirt/nodevirt/shim/record"
	"github.com/nodevirt/nodevirt/shim/vm/table"
	"github.com/nodevirt/nodevirt/shim/vm/vmerrors"
)

// writer writes pods' statuses; [podstatus.Writer] does. It does not wait.
type writer interface {
	Set(pod podstatus.Pod, f podstatus.Facts)
	SetRefused(pod podstatus.Pod, f podstatus.Facts)
	SetAgain(pod podstatus.Pod, f podstatus.Facts)
	Forget(pod podstatus.Pod)
}

// agents is what is known of guests by their agents; package guest's Agents.
type agents interface {
	// State asks nothing; Recent has old facts asked for again, and is nil for a
	// VM that does not run.
	State(v *table.VM) agent.State
	Recent(v *table.VM) *agent.State
	// Credentials is nil for a VM whose agent sets no keys and passwords.
	Credentials(v *table.VM) *podstatus.Credentials
}

// Conditions reports VMs to the API server, as conditions of their pods. No
// method waits for the API server.
type Conditions struct {
	table  *table.Table
	writer writer
	agents agents
	// stays says why a VM stays on its node; empty if it can migrate.
	stays func(record.Container) string
	// paused is why a guest's CPUs stand still: ReasonNone if they run, nil if
	// libvirtd was not asked yet.
	paused table.PerVM[*atomic.Pointer[domain.Reason]]
	// unsettled says what to do about a guest that a migration has paused; nil if nothing.
	unsettled table.PerVM[*atomic.Pointer[string]]
	// failing says which disk has stopped the guest; nil if none has.
	failing table.PerVM[*atomic.Pointer[string]]
	// impaired says what a guest that runs has lost; nil if nothing.
	impaired table.PerVM[*atomic.Pointer[string]]
}

// NewConditions returns Conditions. stays says why a VM stays on its node; empty if it can
// migrate.
func NewConditions(t *table.Table, w writer, a agents, stays func(record.Container) string) *Conditions {
	c := &Conditions{table: t, writer: w, agents: a, stays: stays}
	c.paused.New = func(*table.VM) *atomic.Pointer[domain.Reason] { return &atomic.Pointer[domain.Reason]{} }
	c.unsettled.New = func(*table.VM) *atomic.Pointer[string] { return &atomic.Pointer[string]{} }
	c.failing.New = func(*table.VM) *atomic.Pointer[string] { return &atomic.Pointer[string]{} }
	c.impaired.New = func(*table.VM) *atomic.Pointer[string] { return &atomic.Pointer[string]{} }
	return c
}

// Update reports what is known of a VM now. Of a pod's VMs the latest counts.
func (c *Conditions) Update(v *table.VM) {
	r := v.Record()
	pod, ok := podstatus.PodOf(r.Sandbox.Value)
	if ok && r.State == record.Unknown {
		c.writer.SetAgain(pod, podstatus.Facts{
			Ready: r.Domain.PID != 0, Reason: condition.ReasonDisputed, Message: r.Message, Machine: &podstatus.Machine{Stays: r.Message},
		})
		return
	}
	if !ok || r.State != record.Exited && (r.State != record.Running || c.paused.Of(v).Load() == nil) {
		return
	}
	c.table.IfLatest(r, func() {
		if v.Recovered() {
			c.writer.SetAgain(pod, c.facts(v, r))
			return
		}
		c.writer.Set(pod, c.facts(v, r))
	})
}

// SetState reports whether the guest's CPUs run.
func (c *Conditions) SetState(v *table.VM, s domain.State) {
	reason := domain.ReasonNone
	if s.Status == domain.StatusPaused && s.Reason != domain.ReasonShutdown {
		reason = s.Reason
	}
	c.paused.Of(v).Store(&reason)
	c.Update(v)
}

// SetUnsettled reports what to do about a guest that is paused because its migration has
// no end; an empty message reports that it has one.
func (c *Conditions) SetUnsettled(v *table.VM, message string) {
	c.unsettled.Of(v).Store(&message)
	c.Update(v)
}

// SetDiskError reports which disk has stopped the guest.
func (c *Conditions) SetDiskError(v *table.VM, message string) {
	c.failing.Of(v).Store(&message)
	c.Update(v)
}

// SetImpaired reports what a guest that runs has lost, and what to do.
func (c *Conditions) SetImpaired(v *table.VM, message string) {
	c.impaired.Of(v).Store(&message)
	c.Update(v)
}

// impairment returns what a guest that runs has lost; empty if nothing.
func (c *Conditions) impairment(v *table.VM) string {
	if message := c.impaired.Of(v).Load(); message != nil && v.Record().State == record.Running {
		return *message
	}
	return ""
}

// Paused returns why the guest's CPUs were seen standing still, and [domain.ReasonNone] if they were not.
func (c *Conditions) Paused(v *table.VM) domain.Reason {
	if p := c.paused.Of(v).Load(); p != nil {
		return *p
	}
	return domain.ReasonNone
}

// pausedReason is why the CPUs of a running VM stand still, in the words of
// conditions; empty if they run.
func (c *Conditions) pausedReason(v *table.VM) string {
	p := c.paused.Of(v).Load()
	if p == nil || v.Record().State != record.Running {
		return ""
	}
	return pausedReason(*p)
}

// RefusePod reports why a pod can hold no VM.
func (c *Conditions) RefusePod(config *runtimeapi.PodSandboxConfig, err error) {
	if pod, ok := podstatus.PodOf(config); ok {
		c.writer.SetRefused(pod, podstatus.Facts{Reason: condition.ReasonCreateFailed, Message: err.Error()})
	}
}

// Departed reports that a migration has taken the guest of a pod whose container is removed.
func (c *Conditions) Departed(pod podstatus.Pod, end record.Ended) {
	c.writer.SetRefused(pod, podstatus.Facts{Reason: end.Reason, Message: end.Message, Since: end.At})
}

// RefuseContainer reports why a sandbox has no VM container. The kubelet reports
// that in an event, which expires.
func (c *Conditions) RefuseContainer(sandbox record.Sandbox, err error) {
	pod, ok := podstatus.PodOf(sandbox.Config.Value)
	if ok && errors.Is(err, vmerrors.ErrNotVM) {
		c.ordinary(sandbox, pod, err)
		return
	}
	if !ok || errors.Is(err, vmerrors.ErrExists) {
		return
	}
	reason := condition.ReasonCreateFailed
	if errors.Is(err, vmerrors.ErrUnfinished) {
		reason = condition.ReasonUnfinished
	}
	c.table.IfSandbox(sandbox.ID, func() {
		c.writer.Set(pod, podstatus.Facts{Reason: reason, Message: err.Error()})
	})
}

// ordinary reports, also as an event, that a pod has no VM so far, since the image of its container has no disk. The container
// of a sidecar comes after that of the VM, or the VM's conditions replace these.
func (c *Conditions) ordinary(sandbox record.Sandbox, pod podstatus.Pod, err error) {
	if !errors.Is(err, imageunpack.ErrNoDisk) || len(c.table.All(sandbox.ID)) > 0 {
		return
	}
	c.table.IfSandbox(sandbox.ID, func() {
		c.writer.Set(pod, podstatus.Facts{Reason: condition.ReasonNoVM, Event: true, Message: fmt.Sprintf("%s; it runs as an ordinary container: "+
			"name an image with a disk, or remove the pod's runtimeClassName", err)})
	})
}

// ForgetPod ends the reports on a pod.
func (c *Conditions) ForgetPod(config *runtimeapi.PodSandboxConfig) {
	if pod, ok := podstatus.PodOf(config); ok {
		c.writer.Forget(pod)
	}
}
