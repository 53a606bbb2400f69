package vmtest

import (
	"context"

	"github.com/nodevirt/nodevirt/shim/domain"
)

// Observer is a fake of [domain.Observer].
type Observer struct{ libvirt *Libvirt }

// State implements domain's.
func (o *Observer) State(ctx context.Context, uuid string) (domain.State, error) {
	l := o.libvirt
	d, err := l.on(ctx, "State", uuid)
	if err != nil {
		return domain.State{}, err
	}
	defer l.mu.Unlock()
	return d.state, nil
}

// Domains implements domain's.
func (o *Observer) Domains(ctx context.Context) ([]domain.Info, error) {
	l := o.libvirt
	if err := l.enter(ctx, "Domains"); err != nil {
		return nil, err
	}
	defer l.mu.Unlock()
	var all []domain.Info
	for _, d := range l.domains {
		all = append(all, d.info)
	}
	return all, nil
}

// MachineType implements domain's. An alias is one of QEMU 7.2.
func (o *Observer) MachineType(ctx context.Context, uuid string) (string, error) {
	l := o.libvirt
	d, err := l.on(ctx, "MachineType", uuid)
	if err != nil {
		return "", err
	}
	defer l.mu.Unlock()
	machine, err := domain.MachineTypeIn(d.xml)
	switch machine {
	case "q35":
		machine = "pc-q35-7.2"
	case "pc":
		machine = "pc-i440fx-7.2"
	}
	return machine, err
}

// DiskErrors implements domain's. Of a guest that a disk error stopped, the first disk has no space left.
func (o *Observer) DiskErrors(ctx context.Context, uuid string) (map[string]bool, error) {
	l := o.libvirt
	d, err := l.on(ctx, "DiskErrors", uuid)
	if err != nil {
		return nil, err
	}
	defer l.mu.Unlock()
	all := map[string]bool{}
	if d.state.Reason == domain.ReasonIOError {
		all["sda"], all["vda"] = true, true // the first disk of each bus
	}
	return all, nil
}

// AgentConnected implements domain's.
func (o *Observer) AgentConnected(ctx context.Context, uuid string) (bool, error) {
	l := o.libvirt
	d, err := l.on(ctx, "AgentConnected", uuid)
	if err != nil {
		return false, err
	}
	defer l.mu.Unlock()
	return d.agent, nil
}

// Balloon is a fake of [domain.Balloon].
type Balloon struct{ libvirt *Libvirt }

// SetMemory implements domain's. A guest with a balloon follows at once, or as [Guest] says.
func (b *Balloon) SetMemory(ctx context.Context, uuid string, bytes int64) error {
	l := b.libvirt
	d, err := l.onRunning(ctx, "SetMemory", uuid)
	if err != nil {
		return err
	}
	defer l.mu.Unlock()
	d.released = min(bytes, d.size.RAM)
	if d.balloon && (d.releases == 0 || d.released > d.memory) {
		d.memory = d.released
	}
	return nil
}

// Memory implements domain's.
func (b *Balloon) Memory(ctx context.Context, uuid string) (int64, error) {
	l := b.libvirt
	d, err := l.onRunning(ctx, "Memory", uuid)
	if err != nil {
		return 0, err
	}
	defer l.mu.Unlock()
	if d.memory > d.released && d.balloon {
		d.memory = max(d.memory-d.releases, d.released)
	}
	return d.memory, nil
}
