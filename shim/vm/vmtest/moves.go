package vmtest

import (
	"context"
	"sync"

	"github.com/nodevirt/nodevirt/shim/migrate/order"
	"github.com/nodevirt/nodevirt/shim/podstatus/condition"
	"github.com/nodevirt/nodevirt/shim/record"
	"github.com/nodevirt/nodevirt/shim/vm/table"
)

// Moves is a fake of package move's Moves, on which no VM moves unless a test says so.
type Moves struct {
	script *Script
	// Refuse ends a container that waits, as the lifecycle does.
	Refuse func(ctx context.Context, v *table.VM, reason string) error

	// CPU is the node's, which guests have.
	CPU string

	mu      sync.Mutex
	others  map[string]bool // VMs whose guests other nodes may run
	left    map[string]condition.Departure
	recover []string
}

// NewMoves returns Moves.
func NewMoves(s *Script) *Moves {
	return &Moves{script: s, others: map[string]bool{}, left: map[string]condition.Departure{}}
}

// Check implements move's.
func (m *Moves) Check(record.Container) error { return m.script.note("Moves.Check") }

// Guest implements move's.
func (m *Moves) Guest(r record.Container) (order.Guest, error) {
	return order.Guest{UUID: r.Domain.UUID, CPU: m.CPU}, m.script.note("Moves.Guest")
}

// Recover implements move's.
func (m *Moves) Recover(v *table.VM) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.recover = append(m.recover, v.Record().ID)
}

// Recovered returns the VMs whose migrations were recovered.
func (m *Moves) Recovered() []string {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.recover
}

// Here implements move's.
func (m *Moves) Here(v *table.VM) bool { return m.MayResume(v) }

// MayResume implements move's.
func (m *Moves) MayResume(v *table.VM) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return !m.others[v.Record().ID]
}

// Departure implements move's.
func (m *Moves) Departure(v *table.VM) (condition.Departure, bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	d, ok := m.left[v.Record().ID]
	return d, ok
}

// Do implements move's: it answers with the control and its argument.
func (m *Moves) Do(ctx context.Context, _ *table.VM, control, argument string) ([]byte, error) {
	return []byte(control + " " + argument), m.script.enter(ctx, "Moves.Do")
}

// End implements move's.
func (m *Moves) End(ctx context.Context, v *table.VM, reason string) error {
	if err := m.script.enter(ctx, "Moves.End"); err != nil {
		return err
	}
	return m.Refuse(ctx, v, reason)
}

// SetElsewhere says whether another node may run a VM's guest.
func (m *Moves) SetElsewhere(id string, is bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.others[id] = is
}

// SetLeft says where a VM's guest has gone.
func (m *Moves) SetLeft(id string, d condition.Departure) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.left[id] = d
}
