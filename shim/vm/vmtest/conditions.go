package vmtest

import (
	"errors"
	"sync"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/nodevirt/nodevirt/shim/domain"
	"github.com/nodevirt/nodevirt/shim/podstatus"
	"github.com/nodevirt/nodevirt/shim/record"
	"github.com/nodevirt/nodevirt/shim/vm/table"
)

// Conditions is a fake of package report's Conditions.
type Conditions struct {
	mu      sync.Mutex
	states  map[string]domain.State
	updates map[string]record.State
	refused []error
	gone    []string
	lost    map[string]string
	disks   map[string]string
}

// NewConditions returns Conditions on which nothing was reported.
func NewConditions() *Conditions {
	return &Conditions{states: map[string]domain.State{}, updates: map[string]record.State{}, lost: map[string]string{}, disks: map[string]string{}}
}

// Update implements report's.
func (c *Conditions) Update(v *table.VM) {
	c.mu.Lock()
	defer c.mu.Unlock()
	r := v.Record()
	c.updates[r.ID] = r.State
}

// SetState implements report's.
func (c *Conditions) SetState(v *table.VM, s domain.State) {
	c.mu.Lock()
	c.states[v.Record().ID] = s
	c.mu.Unlock()
	c.Update(v)
}

// Paused implements report's.
func (c *Conditions) Paused(v *table.VM) domain.Reason {
	if s := c.StateOf(v.Record().ID); s.Status == domain.StatusPaused {
		return s.Reason
	}
	return domain.ReasonNone
}

// SetImpaired implements report's.
func (c *Conditions) SetImpaired(v *table.VM, message string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.lost[v.Record().ID] = message
}

// SetDiskError implements report's.
func (c *Conditions) SetDiskError(v *table.VM, message string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.disks[v.Record().ID] = message
}

// DiskError returns what was reported last of the disk that has stopped a VM's guest.
func (c *Conditions) DiskError(id string) string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.disks[id]
}

// Impaired returns what was reported last that a VM's guest has lost.
func (c *Conditions) Impaired(id string) string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.lost[id]
}

// RefuseContainer implements report's.
func (c *Conditions) RefuseContainer(_ record.Sandbox, err error) { c.refuse(err) }

// RefusePod implements report's.
func (c *Conditions) RefusePod(_ *runtimeapi.PodSandboxConfig, err error) { c.refuse(err) }

// Departed implements report's.
func (c *Conditions) Departed(_ podstatus.Pod, end record.Ended) { c.refuse(errors.New(end.Message)) }

func (c *Conditions) refuse(err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.refused = append(c.refused, err)
}

// ForgetPod implements report's.
func (c *Conditions) ForgetPod(config *runtimeapi.PodSandboxConfig) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.gone = append(c.gone, config.GetMetadata().GetName())
}

// StateOf returns the state that was reported last of a VM's domain.
func (c *Conditions) StateOf(id string) domain.State {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.states[id]
}

// Updated returns a VM's state at its last report.
func (c *Conditions) Updated(id string) record.State {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.updates[id]
}

// Refused returns the errors that were reported of pods without a VM.
func (c *Conditions) Refused() []error {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.refused
}

// Forgotten returns the names of the pods on which reports ended.
func (c *Conditions) Forgotten() []string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.gone
}
