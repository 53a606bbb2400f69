package lifecycle

import (
	"context"
	"errors"
	"log/slog"
	"sync"

	"github.com/nodevirt/nodevirt/shim/domain"
	"github.com/nodevirt/nodevirt/shim/vm/background"
)

// unanswered are domains for whose start libvirtd did not answer. The shim has
// undone these starts, but a libvirtd that hung still does what it was asked on a
// connection that the shim gave up. The list is as short as the number of such
// starts, and entries stay: nothing reports that libvirtd is done with them.
type unanswered struct {
	domains ender
	log     *slog.Logger

	mu    sync.Mutex
	uuids map[string]bool
}

// note remembers a domain if err, of a call about it, leaves its result open. It
// returns err.
func (u *unanswered) note(uuid string, err error) error {
	if !errors.Is(err, domain.ErrUnavailable) && !errors.Is(err, domain.ErrUnanswered) {
		return err
	}
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.uuids == nil {
		u.uuids = map[string]bool{}
	}
	u.uuids[uuid] = true
	return err
}

// of returns the domain of an event if it is one of these; if events may have
// been missed, it returns all of them.
func (u *unanswered) of(e domain.Event) (uuids []string) {
	u.mu.Lock()
	defer u.mu.Unlock()
	for uuid := range u.uuids {
		appears := e.UUID == uuid && (e.Kind == domain.EventDefined || e.Kind == domain.EventStarted)
		if appears || e.Kind == domain.EventResync {
			uuids = append(uuids, uuid)
		}
	}
	return uuids
}

// remove ends a domain that appeared after its container's start had failed, and
// reports whether it is gone.
func (u *unanswered) remove(ctx context.Context, uuid string) bool {
	ctx, cancel := background.AtMost(ctx, patience)
	defer cancel()
	err := errors.Join(u.domains.Destroy(ctx, uuid), u.domains.Undefine(ctx, uuid))
	if err != nil && ctx.Err() == nil {
		u.log.Error("ending the domain of a start that had failed failed, retrying", "uuid", uuid, "error", err)
	}
	return err == nil
}
