package agent

import (
	"sync"
	"time"
)

// Presence says whether a guest's agent is connected.
type Presence string

// The presences. QEMU reports when a guest opens and closes the agent's port.
const (
	Unknown Presence = "unknown" // not reported yet
	Absent  Presence = "disconnected"
	Present Presence = "connected"
)

// Port is the port of one guest's agent, as QEMU reports it. Its methods may be called
// concurrently.
type Port struct {
	absent  func() // called when the agent is gone
	changed func() // called after each report

	mu  sync.Mutex
	now reading
}

// reading is what is known of a port at one moment.
type reading struct {
	presence Presence
	since    time.Time // of presence
	changes  int       // of presence
	reports  int       // also those that changed nothing
}

func (p *Port) read() reading {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.now
}

// Report records the state of the guest's port as QEMU reports it. If the agent is
// gone, calls that wait for it fail at once.
func (p *Port) Report(presence Presence) {
	p.set(presence)
	if presence == Absent {
		p.absent()
	}
	p.changed()
}

func (p *Port) set(presence Presence) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.now.reports++
	if p.now.presence != presence {
		p.now.presence, p.now.since = presence, time.Now()
		p.now.changes++
	}
}

// Doubt sets the presence to Unknown. The caller finds out the presence and passes
// it to resolve, which ignores it if Report was called meanwhile.
func (p *Port) Doubt() (resolve func(Presence)) {
	p.Report(Unknown)
	reports := p.read().reports
	return func(presence Presence) {
		if p.read().reports == reports {
			p.Report(presence)
		}
	}
}
