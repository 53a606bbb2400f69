package move

import (
	"context"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"github.com/nodevirt/nodevirt/shim/domain"
	"github.com/nodevirt/nodevirt/shim/migrate/handover"
	"github.com/nodevirt/nodevirt/shim/migrate/link"
	"github.com/nodevirt/nodevirt/shim/migrate/order"
)

// end is this node's end of a migration: [handover.Source] or [handover.Target].
type end interface{ Record() handover.Record }

// migration is one migration of a VM, as this node knows it. The fields of an end are set
// once, under the mutex.
type migration struct {
	uid      string
	copies   []string // names of disks that the source copies to other PVCs
	identity link.Identity
	copied   atomic.Int64               // bytes sent to the target
	job      atomic.Pointer[domain.Job] // of a copy in progress; may be nil

	mu        sync.Mutex
	source    *handover.Source
	target    *handover.Target
	cancel    context.CancelCauseFunc // of a source that runs
	peer      string                  // the source's fingerprint, on the target
	address   string                  // the target's
	begun     time.Time
	done      time.Time
	paused    bool // the guest is paused while its memory is copied
	unsettled bool
}

// reached returns how a source reaches this node, the target.
func (g *migration) reached() order.Identity {
	return order.Identity{Fingerprint: g.identity.Fingerprint().String(), Address: g.address, Files: true}
}

// ends returns the node's end, nil if the migration has not begun.
func (g *migration) ends() end {
	g.mu.Lock()
	defer g.mu.Unlock()
	switch {
	case g.source != nil:
		return g.source
	case g.target != nil:
		return g.target
	}
	return nil
}

// from returns the source, nil if this node is not the source of one that began.
func (g *migration) from() *handover.Source {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.source
}

// stop ends a source's copy, if there is one.
func (g *migration) stop(why error) {
	g.mu.Lock()
	cancel := g.cancel
	g.mu.Unlock()
	if cancel != nil {
		cancel(why)
	}
}

// active reports whether the migration has begun and this node has not carried its
// decision out.
func (g *migration) active() bool {
	e := g.ends()
	return e != nil && !e.Record().Ended
}

func (g *migration) finished() {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.done.IsZero() {
		g.done = time.Now()
	}
	g.unsettled = false
}

// report says what is known, from memory alone.
func (g *migration) report() order.Report {
	r := order.Report{Migration: order.Migration{Migration: g.uid}, Processed: g.copied.Load()}
	if e := g.ends(); e != nil {
		rec := e.Record()
		r.State, r.Reason, r.Ended = string(rec.State), rec.Reason, rec.Ended
	}
	if job := g.job.Load(); job != nil {
		r.Total, r.Remaining = int64(job.Total), int64(job.Remaining)
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	r.Begun, r.Done, r.Paused, r.Unsettled = g.begun, g.done, g.paused, g.unsettled
	return r
}

// counted counts what is sent on a connection.
type counted struct {
	net.Conn
	sent *atomic.Int64
}

func (c counted) Write(p []byte) (int, error) {
	n, err := c.Conn.Write(p)
	c.sent.Add(int64(n))
	return n, err
}
