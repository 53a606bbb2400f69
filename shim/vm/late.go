package vm

import (
	"context"
	"errors"
	"sync"

	"github.com/nodevirt/nodevirt/shim/domain"
)

// late are domains whose start libvirtd did not answer for, and that were taken
// back since. A libvirtd that hung still does what it was asked on a connection
// that was given up, when nobody expects it any more. They are as few as the
// starts that libvirtd's end or silence cut off, and kept for good: nothing tells
// when it is done with them.
type late struct {
	mu    sync.Mutex
	uuids map[string]bool
}

// note remembers a domain if err, of asking for it, leaves open what comes of it.
func (l *late) note(uuid string, err error) error {
	if !errors.Is(err, domain.ErrUnavailable) && !errors.Is(err, context.Canceled) {
		return err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.uuids == nil {
		l.uuids = map[string]bool{}
	}
	l.uuids[uuid] = true
	return err
}

// of returns the domain of an event if it is one of these; all of them if there
// may have been events that nobody saw.
func (l *late) of(e domain.Event) (uuids []string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for uuid := range l.uuids {
		comes := e.UUID == uuid && (e.Kind == domain.EventDefined || e.Kind == domain.EventStarted)
		if comes || e.Kind == domain.EventResync {
			uuids = append(uuids, uuid)
		}
	}
	return uuids
}

// removeLate ends a domain that came after its container's start had failed.
func (m *Manager) removeLate(ctx context.Context, uuid string) {
	if err := errors.Join(m.Driver.Destroy(ctx, uuid), m.Driver.Undefine(ctx, uuid)); err != nil && ctx.Err() == nil {
		m.Logger.Error("ending a domain that came too late failed", "uuid", uuid, "error", err)
	}
}
