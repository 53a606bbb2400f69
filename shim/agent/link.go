package agent

import (
	"context"
	"errors"
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

// Agent is the agent of one VM. Its methods may be called concurrently.
type Agent struct {
	patience
	socket string
	large  chan struct{}
	// terminals holds the unused ones.
	terminals chan Terminal

	turn chan struct{} // held by the call that speaks with the agent
	conn *conn         // belongs to the holder of turn; nil if not connected

	mu       sync.Mutex
	presence Presence
	since    time.Time // of presence
	told     int       // how often presence was reported
	open     *conn     // the same connection, for others to close
	silent   time.Time // when the agent was last found silent
	execs    int       // running commands
	about    about
	changed  func() // see Notify
}

// New returns the agent of the VM with a unix socket. terminals are the VM's
// consoles for commands, which only the Agent may use. The capacity of large bounds
// how many large answers of all agents are in memory at once.
func New(socket string, terminals []Terminal, large chan struct{}) *Agent {
	a := &Agent{socket: socket, patience: patience{syncTime, silence, outputSilence}, large: large, turn: make(chan struct{}, 1), presence: Unknown}
	a.terminals = make(chan Terminal, len(terminals))
	for _, t := range terminals {
		a.terminals <- t
	}
	return a
}

// Notify sets the function to call whenever the result of State may have changed.
// The function must not block for long. Call Notify once, before any other method.
func (a *Agent) Notify(changed func()) { a.changed = changed }

func (a *Agent) notify() {
	if a.changed != nil {
		a.changed()
	}
}

// Tell records the state of the guest's port as QEMU reports it. If the agent is
// gone, calls that wait for it fail at once.
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

// Doubt sets the presence to Unknown. The caller finds out the presence and passes
// it to resolve, which ignores it if Tell was called meanwhile.
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

// call runs one command of the agent when it is this call's turn.
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

// ready returns an error if asking is pointless: no agent is connected, or it was
// found silent since begun, while the caller waited for its turn.
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
	// A call waits for the answer even if its caller gives up: the command may have
	// started a process that must be tracked.
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
