package agent

import (
	"context"
	"errors"
	"sync"
	"time"
)

// Presence is whether a guest's agent is there, as far as is known.
type Presence string

// The presences. QEMU tells when a guest opens and closes the agent's port.
const (
	Unknown Presence = "unknown" // nobody told yet
	Absent  Presence = "disconnected"
	Present Presence = "connected"
)

// Agent is the agent of one machine. Its methods can be called from any goroutine.
type Agent struct {
	patience
	socket string
	large  chan struct{}
	// terminals are those that nobody uses.
	terminals chan Terminal

	turn chan struct{} // of whoever speaks with the agent
	conn *conn         // of whoever has the turn; nil where there is none

	mu       sync.Mutex
	presence Presence
	since    time.Time // of presence
	told     int       // how often it was told
	open     *conn     // the same connection, to be closed from outside
	silent   time.Time // when the agent was last found silent
	execs    int       // commands that run
	about    about
	changed  func() // see Notify
}

// New makes the agent of a machine behind a unix socket. terminals are the
// machine's consoles for commands, which nobody else must use. large bounds, by its
// capacity, how many large answers of all agents are in memory at once.
func New(socket string, terminals []Terminal, large chan struct{}) *Agent {
	a := &Agent{socket: socket, patience: patience{syncTime, silence, outputSilence}, large: large, turn: make(chan struct{}, 1), presence: Unknown}
	a.terminals = make(chan Terminal, len(terminals))
	for _, t := range terminals {
		a.terminals <- t
	}
	return a
}

// Notify has a function called whenever State may tell something new. It must not
// wait for long. Only one is called; it has to be set before the agent is used.
func (a *Agent) Notify(changed func()) { a.changed = changed }

func (a *Agent) notify() {
	if a.changed != nil {
		a.changed()
	}
}

// Tell makes known what QEMU tells of the guest's port. Who waits for an agent
// that has gone waits no longer.
func (a *Agent) Tell(p Presence) {
	defer a.notify()
	a.mu.Lock()
	defer a.mu.Unlock()
	a.told++
	if a.presence != p {
		a.presence, a.since = p, time.Now()
		a.about.stale = true
	}
	if p != Present {
		a.about.asked = time.Time{}
	}
	if p == Absent && a.open != nil {
		_ = a.open.Close()
	}
}

// Doubt makes the presence unknown, until somebody tells or what the caller now
// finds out is passed to resolve. What was told meanwhile is newer, and stays.
func (a *Agent) Doubt() (resolve func(Presence)) {
	a.Tell(Unknown)
	a.mu.Lock()
	defer a.mu.Unlock()
	told := a.told
	return func(p Presence) {
		a.mu.Lock()
		newer := a.told != told
		a.mu.Unlock()
		if !newer {
			a.Tell(p)
		}
	}
}

// call asks the agent for one command, when it is this call's turn.
func (a *Agent) call(ctx context.Context, command string, arguments any, limit int, result any) error {
	begun := time.Now()
	select {
	case a.turn <- struct{}{}:
		defer func() { <-a.turn }()
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	if err := a.ready(begun); err != nil {
		return err
	}
	err := a.speak(ctx, command, arguments, limit, result)
	if r, ok := errors.AsType[*refusal](err); err == nil || ok && r != nil {
		return err
	}
	a.hangUp(errors.Is(err, ErrSilent))
	if a.isAbsent() {
		return ErrGone
	}
	return err
}

// ready tells why there is no point in asking. Who waited for its turn since
// before the agent was found silent need not find that out again.
func (a *Agent) ready(begun time.Time) error {
	a.mu.Lock()
	defer a.mu.Unlock()
	switch {
	case a.presence == Absent:
		return ErrAbsent
	case a.silent.After(begun):
		return ErrSilent
	}
	return nil
}

func (a *Agent) isAbsent() bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.presence == Absent
}

func (a *Agent) speak(ctx context.Context, command string, arguments any, limit int, result any) error {
	if a.conn == nil {
		c, err := dial(ctx, a.socket, a.patience, a.large)
		if err != nil {
			return err
		}
		a.conn = c
		a.mu.Lock()
		a.open = c
		a.mu.Unlock()
	}
	// A command that was sent is waited for, whatever becomes of the caller: a
	// process that it may have started would be nobody's.
	return a.conn.ask(context.WithoutCancel(ctx), command, arguments, limit, result)
}

// hangUp closes the connection.
func (a *Agent) hangUp(silent bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if silent {
		a.silent = time.Now()
	}
	if a.conn != nil {
		_ = a.conn.Close()
	}
	a.conn, a.open = nil, nil
}
