package vmtest

import "github.com/nodevirt/nodevirt/shim/domain"

// SetAway ends the connection to libvirtd, or makes a new one. Domains go on
// meanwhile, and no event reports what happens to them.
func (l *Libvirt) SetAway(away bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.away = away
	l.send(domain.Event{Kind: domain.EventResync})
	l.notify()
}

// Emit sends an event.
func (l *Libvirt) Emit(e domain.Event) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.send(e)
}

// End ends a guest, as if by itself.
func (l *Libvirt) End(uuid string, reason domain.Reason) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.end(l.domains[uuid], reason)
}

// Pause stops a guest's CPUs.
func (l *Libvirt) Pause(uuid string, reason domain.Reason) {
	l.mu.Lock()
	defer l.mu.Unlock()
	d := l.domains[uuid]
	d.state.Status, d.state.Reason = domain.StatusPaused, reason
	l.send(domain.Event{UUID: uuid, Kind: domain.EventSuspended, Reason: reason})
}

// Guest is how a guest behaves.
type Guest struct {
	// Obeys is the number of the power button's press that the guest acts on; 0 for none.
	Obeys int
	// NoBalloon is set for a guest that releases no memory.
	NoBalloon bool
	// Releases is how many bytes the guest releases each time it is asked what it has; 0 for all at once.
	Releases int64
	// Agent is set for a guest whose agent has its port open.
	Agent bool
}

// SetGuest says how a guest behaves from now on.
func (l *Libvirt) SetGuest(uuid string, g Guest) {
	l.mu.Lock()
	defer l.mu.Unlock()
	d := l.domains[uuid]
	d.obeys, d.balloon, d.agent, d.releases = g.Obeys, !g.NoBalloon, g.Agent, g.Releases
}

// Presses returns how often the power button of a running guest was pressed.
func (l *Libvirt) Presses(uuid string) int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.domains[uuid].presses
}

// Forget makes libvirtd forget a domain whose QEMU runs on, as if its status file and its definition were lost.
// It returns QEMU's process ID.
func (l *Libvirt) Forget(uuid string) (pid int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	d := l.domains[uuid]
	pid = d.state.PID
	l.forgotten[pid] = d.info
	delete(l.domains, uuid)
	l.notify()
	return pid
}

// Kill ends a QEMU that libvirtd has forgotten.
func (l *Libvirt) Kill(pid int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.forgotten, pid)
	l.notify()
}

// Lose makes libvirtd forget a domain without an event, whose QEMU has ended.
func (l *Libvirt) Lose(uuid string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.domains, uuid)
	l.notify()
}

// Status returns whether a domain runs, "" if there is none.
func (l *Libvirt) Status(uuid string) domain.Status {
	l.mu.Lock()
	defer l.mu.Unlock()
	if d := l.domains[uuid]; d != nil {
		return d.state.Status
	}
	return ""
}

// XML returns how a domain was defined.
func (l *Libvirt) XML(uuid string) string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.domains[uuid].xml
}

// Restored returns the memory with which a domain started; empty for one that booted.
func (l *Libvirt) Restored(uuid string) string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.domains[uuid].restored
}

// Pins returns where a domain's threads were placed last.
func (l *Libvirt) Pins(uuid string) domain.Pins {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.domains[uuid].pins
}

// Variables returns the path of the file that a domain's firmware was made to write to.
func (l *Libvirt) Variables(uuid string) string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.domains[uuid].variables
}

// Left returns the domains that there are.
func (l *Libvirt) Left() []string {
	l.mu.Lock()
	defer l.mu.Unlock()
	var all []string
	for _, d := range l.domains {
		all = append(all, "domain "+d.info.Name)
	}
	return all
}
