package agent

import (
	"context"
	"errors"
	"sync"
	"time"
)

// link is the connection to one agent. Calls take turns.
type link struct {
	patience patience
	socket   string
	large    Large
	// namespace is the VM's.
	namespace string
	port      presenceReader

	turn chan struct{} // held by the call that speaks with the agent
	conn *conn         // belongs to the holder of turn; nil if not connected

	mu     sync.Mutex
	open   *conn     // the same connection, for others to close
	silent time.Time // when the agent was last found silent
}

// cut closes the connection under the call that uses it.
func (l *link) cut() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.open != nil {
		_ = l.open.raw.Close()
	}
}

// call runs one command of the agent when it is this call's turn.
func (l *link) call(ctx context.Context, command string, arguments any, limit int, result any) error {
	begun := time.Now()
	select {
	case l.turn <- struct{}{}:
		defer func() { <-l.turn }()
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	if err := l.ready(begun); err != nil {
		return err
	}
	err := l.speak(ctx, command, arguments, limit, result)
	if r, ok := errors.AsType[*refusal](err); err == nil || ok && r != nil {
		return err
	}
	l.hangUp(errors.Is(err, ErrSilent))
	if l.port.read().presence == Absent {
		return ErrGone
	}
	return err
}

// ready returns an error if asking is pointless: no agent is connected, or it was
// found silent since begun, while the caller waited for its turn.
func (l *link) ready(begun time.Time) error {
	if l.port.read().presence == Absent {
		return ErrAbsent
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.silent.After(begun) {
		return ErrSilent
	}
	return nil
}

func (l *link) speak(ctx context.Context, command string, arguments any, limit int, result any) error {
	if l.conn == nil {
		c, err := dial(ctx, l.socket, l.patience, l.large, l.namespace)
		if err != nil {
			return err
		}
		l.conn = c
		l.mu.Lock()
		l.open = c
		l.mu.Unlock()
	}
	// A call waits for the answer even if its caller gives up: the command may have
	// started a process that must be tracked.
	return l.conn.ask(context.WithoutCancel(ctx), command, arguments, limit, result)
}

// hangUp closes the connection.
func (l *link) hangUp(silent bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if silent {
		l.silent = time.Now()
	}
	if l.conn != nil {
		_ = l.conn.raw.Close()
	}
	l.conn, l.open = nil, nil
}
