package agent

import (
	"context"
	"net/netip"
	"sync"
	"time"
)

// State is what the agent has reported about its guest. All fields but Presence and
// Since are the guest's own text.
type State struct {
	Presence Presence `json:"state"`
	// Since is when the agent connected or disconnected, zero if not known.
	Since time.Time `json:"since,omitzero"`
	// Updated is when the agent reported the following fields, zero if it never did.
	Updated    time.Time   `json:"updated,omitzero"`
	Version    string      `json:"version,omitempty"`
	Hostname   string      `json:"hostname,omitempty"`
	OS         *OS         `json:"os,omitempty"`
	Interfaces []Interface `json:"interfaces,omitempty"`
	// Filesystems are those that the guest has mounted.
	Filesystems []Filesystem `json:"filesystems,omitempty"`
	// Refused are commands that guests should allow and this agent does not.
	Refused []string `json:"refused,omitempty"`
	// Frozen says that the guest's file systems accept no writes.
	Frozen bool `json:"frozen,omitempty"`
	// Problem is why the agent reported nothing.
	Problem string `json:"problem,omitempty"`
}

// OS is a guest's operating system, with values of os-release(5) and uname(2).
type OS struct {
	ID      string `json:"id,omitempty"`
	Name    string `json:"name,omitempty"`
	Version string `json:"version,omitempty"`
	Kernel  string `json:"kernel,omitempty"`
	Machine string `json:"machine,omitempty"`
}

// Interface is a network interface of a guest.
type Interface struct {
	Name      string         `json:"name"`
	MAC       string         `json:"mac,omitempty"`
	Addresses []netip.Prefix `json:"addresses,omitempty"`
}

// factsAge is the age after which State is refreshed.
const factsAge = 10 * time.Second

// factsTime bounds a refresh.
const factsTime = 30 * time.Second

// Facts caches what one agent reports about its guest. Its methods may be called
// concurrently.
type Facts struct {
	port    presenceReader
	agent   interviewer
	changed func() // called when the result of State may have changed
	hasten  chan struct{}

	mu    sync.Mutex
	state State
	asked time.Time // when the last refresh began; zero after one whose agent has changed
	seen  int       // the changes of presence until then
	busy  bool
}

// presenceReader reads whether an agent is connected; [Port].
type presenceReader interface{ read() reading }

// interviewer asks an agent for its state; [Queries].
type interviewer interface {
	State(ctx context.Context) (State, error)
}

// State returns the cached state, without a call to the agent.
func (f *Facts) State() State {
	f.mu.Lock()
	defer f.mu.Unlock()
	s, port := f.state, f.port.read()
	s.Presence, s.Since = port.presence, port.since
	return s
}

// Due reports whether to call [Facts.Refresh]: an agent is connected, and the cached
// state is old, or another agent's, and not being refreshed.
func (f *Facts) Due() bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	port := f.port.read()
	return port.presence == Present && !f.busy && (port.changes != f.seen || time.Since(f.asked) > factsAge)
}

// The pauses between two refreshes by Watch: the first, which is short since a
// booting guest's state changes soon, and the longest.
const (
	firstPause = 5 * time.Second
	lastPause  = 5 * time.Minute
)

// Watch refreshes the state regularly until QEMU reports the port again, gone is
// closed or ctx ends.
func (f *Facts) Watch(ctx context.Context, gone <-chan struct{}) {
	reports := f.port.read().reports
	for pause := firstPause; ; pause = min(4*pause, lastPause) {
		f.Refresh(ctx)
		select {
		case <-ctx.Done():
			return
		case <-gone:
			return
		case <-f.hasten:
			pause = firstPause / 4 // so the next one is the first again
		case <-time.After(pause):
		}
		if f.port.read().reports != reports {
			return
		}
	}
}

// Hasten has Watch refresh the state now, and soon again: the guest has got something new. It does nothing if there is no Watch.
func (f *Facts) Hasten() {
	select {
	case f.hasten <- struct{}{}:
	default: // it is asked for already
	}
}

// Refresh asks the agent for the state that State returns from then on.
func (f *Facts) Refresh(ctx context.Context) {
	if !f.begin() {
		return
	}
	ctx, cancel := context.WithTimeoutCause(ctx, factsTime, ErrSilent)
	defer cancel()
	s, err := f.agent.State(ctx)
	if err != nil {
		s.Problem = clean(err.Error())
	}
	f.end(s)
	f.changed()
}

// begin reports whether no other refresh is in progress.
func (f *Facts) begin() bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.busy {
		return false
	}
	f.busy, f.asked, f.seen = true, time.Now(), f.port.read().changes
	return true
}

// end keeps the result of a refresh, unless the agent connected or disconnected
// meanwhile.
func (f *Facts) end(s State) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.busy = false
	if f.port.read().changes != f.seen {
		f.asked = time.Time{}
		return
	}
	if s.Frozen && !f.state.Updated.IsZero() { // a frozen guest answers little else
		known := f.state
		known.Frozen, known.Updated = true, s.Updated
		s = known
	}
	f.state = s
}
