// Package outage makes requests to iSCSI disks fail while their target does not answer.
//
// QEMU's initiator waits for a target without a limit: it has a timeout for a request, after which it
// reconnects, but none for the reconnection. The guest hangs, and so do the calls that would pause or
// stop it. So this package polls the portals that VMs use. When a portal has not answered for some time,
// it ends the VMs' connections to the portal and redirects them to a dead end. That is a separate
// target, which accepts every initiator and answers each request with an error. The disk's error policy
// then decides what happens to the guest.
//
// It owns the dead ends and the nftables table that redirects to them. It leaves the list of portals to
// its caller, and the targets of this node to package iscsi.
package outage

import (
	"context"
	"errors"
	"log/slog"
	"net/netip"
	"sync"
	"time"
)

// Options are the settings of Watch. All are needed.
type Options struct {
	// Portals returns the portals of running VMs' disks. It must not block.
	Portals func() []netip.AddrPort
	// FirstUID to LastUID are the users of the VMs, and of no other processes. Only their
	// connections are redirected.
	FirstUID, LastUID uint32
	// Patience is how long a portal may leave requests unanswered.
	Patience time.Duration
	Logger   *slog.Logger
}

// askEvery is the pause between two polls, askTime how long an answer may take.
const (
	askEvery = 5 * time.Second
	askTime  = 5 * time.Second
)

// Watch polls the portals until ctx ends. It works in the network namespace of the calling process,
// which must be that of the VMs. It first removes the rules of a shim that was killed.
func Watch(ctx context.Context, o Options) {
	w := watcher{Options: o, portals: map[netip.AddrPort]*portal{}}
	if err := removeRules(ctx); err != nil && ctx.Err() == nil {
		o.Logger.Warn("can't remove the redirections of iSCSI portals", "error", err)
	}
	tick := time.NewTicker(min(askEvery, o.Patience/2))
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			w.close(context.WithoutCancel(ctx))
			return
		case <-tick.C:
			w.turn(ctx)
		}
	}
}

type watcher struct {
	Options
	portals map[netip.AddrPort]*portal
	// unsure is set while the rules may differ from the portals' states.
	unsure bool
}

// portal is the state of a portal.
type portal struct {
	// answered is the time of its last answer, or of the first poll.
	answered time.Time
	// end is the dead end for its users; nil while the portal answers.
	end *deadEnd
}

// turn polls all portals once.
func (w *watcher) turn(ctx context.Context) {
	used := map[netip.AddrPort]bool{}
	for _, at := range w.Portals() {
		used[at] = true
		if w.portals[at] == nil {
			w.portals[at] = &portal{answered: time.Now()}
		}
	}
	errs := map[netip.AddrPort]error{}
	var mu sync.Mutex
	var asked sync.WaitGroup
	for at := range used {
		asked.Go(func() {
			err := ask(ctx, at)
			mu.Lock()
			defer mu.Unlock()
			errs[at] = err
		})
	}
	asked.Wait()
	if ctx.Err() != nil {
		return
	}
	if w.unsure {
		if err := w.redirect(ctx, netip.AddrPort{}, nil); err != nil {
			w.Logger.Error("can't renew the redirections of iSCSI portals, retrying", "error", err)
		}
	}
	for at, p := range w.portals {
		w.update(ctx, at, p, errs[at])
		if !used[at] && p.end == nil {
			delete(w.portals, at)
		}
	}
}

// update acts on the result of a poll. An unused portal counts as one that answers.
func (w *watcher) update(ctx context.Context, at netip.AddrPort, p *portal, err error) {
	log := w.Logger.With("portal", at)
	switch {
	case err == nil && p.end == nil:
		p.answered = time.Now()
	case err == nil:
		if err := w.redirect(ctx, at, nil); err != nil {
			log.Error("can't remove the redirection of an iSCSI portal, retrying", "error", err)
			return
		}
		p.end.close()
		p.end, p.answered = nil, time.Now()
		log.Info("the iSCSI portal answers again")
	case p.end == nil && time.Since(p.answered) >= w.Patience:
		end, listenErr := listen(at.Addr())
		if listenErr == nil {
			listenErr = w.redirect(ctx, at, end)
		}
		if listenErr != nil {
			log.Error("can't redirect the users of an iSCSI portal that does not answer, retrying",
				"error", errors.Join(err, listenErr))
			end.close()
			return
		}
		p.end = end
		log.Error("the iSCSI portal does not answer: its disks return errors to guests or pause them, "+
			"according to their error policies", "since", p.answered, "error", err)
		if err := w.disconnect(at, p.end); err != nil {
			log.Error("can't end the connections to an iSCSI portal that does not answer", "error", err)
		}
	case p.end != nil:
		if err := w.disconnect(at, p.end); err != nil {
			log.Debug("can't end the connections to an iSCSI portal that does not answer", "error", err)
		}
	}
}

// redirect redirects the VMs' connections to a portal to a dead end, or, if end is nil, no longer.
func (w *watcher) redirect(ctx context.Context, at netip.AddrPort, end *deadEnd) (err error) {
	defer func() { w.unsure = err != nil }()
	var rules []rule
	for other, p := range w.portals {
		if other != at && p.end != nil {
			rules = append(rules, rule{portal: other, port: p.end.port()})
		}
	}
	if end != nil {
		rules = append(rules, rule{portal: at, port: end.port()})
	}
	if len(rules) == 0 {
		return removeRules(ctx)
	}
	return writeRules(ctx, w.FirstUID, w.LastUID, rules)
}

// close removes all redirections.
func (w *watcher) close(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, askTime)
	defer cancel()
	away := w.unsure
	for _, p := range w.portals {
		away = away || p.end != nil
	}
	if !away {
		return
	}
	if err := removeRules(ctx); err != nil {
		w.Logger.Error("can't remove the redirections of iSCSI portals", "error", err)
	}
	for _, p := range w.portals {
		p.end.close()
	}
}
