// Package outage gives the users of disks over iSCSI an error where their target does not answer.
//
// QEMU's initiator waits for a target without an end: it has a timeout for a request, upon which it
// connects again, and none for that. Its guest hangs, and so does what would pause or stop it in good
// order. So a portal that machines use is asked again and again whether it answers. While it has not
// for some time, their connections to it are broken off and led to a target of this package's, a dead
// end, which lets everybody in and answers each request by an error: then it is the disk's error
// policy that says what becomes of the guest.
//
// It owns the dead ends, and the nftables table that leads to them. Which portals there are is the
// caller's to tell, and what tgtd serves is package iscsi's.
package outage

import (
	"context"
	"errors"
	"log/slog"
	"net/netip"
	"sync"
	"time"
)

// Options say whom to watch over. All are needed.
type Options struct {
	// Portals are those that the disks of running machines are at. It must not block.
	Portals func() []netip.AddrPort
	// FirstUID to LastUID are the users that machines run as, and nobody else: only their
	// connections are led elsewhere.
	FirstUID, LastUID uint32
	// Patience is for how long a portal may not answer.
	Patience time.Duration
	Logger   *slog.Logger
}

// askEvery is the pause between two questions, askTime how long an answer may take.
const (
	askEvery = 5 * time.Second
	askTime  = 5 * time.Second
)

// Watch watches until ctx ends. It works in the network namespace of the calling process, which has
// to be that of the machines. What one that was killed has left is taken back first.
func Watch(ctx context.Context, o Options) {
	w := watcher{Options: o, portals: map[netip.AddrPort]*portal{}}
	if err := removeRules(ctx); err != nil && ctx.Err() == nil {
		o.Logger.Warn("removing the rules of iSCSI portals that were away failed", "error", err)
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
	// unsure is set while the rules may be others than the portals' states ask for.
	unsure bool
}

// portal is one that is watched.
type portal struct {
	// answered is when it did last, or was first asked.
	answered time.Time
	// end is where its users are led; nil while it answers.
	end *deadEnd
}

// turn asks all portals once.
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
		if err := w.lead(ctx, netip.AddrPort{}, nil); err != nil {
			w.Logger.Error("renewing the rules of iSCSI portals that are away failed, trying on", "error", err)
		}
	}
	for at, p := range w.portals {
		w.heed(ctx, at, p, errs[at])
		if !used[at] && p.end == nil {
			delete(w.portals, at)
		}
	}
}

// heed does what a portal's answer asks for. One that nobody uses any more has answered.
func (w *watcher) heed(ctx context.Context, at netip.AddrPort, p *portal, err error) {
	log := w.Logger.With("portal", at)
	switch {
	case err == nil && p.end == nil:
		p.answered = time.Now()
	case err == nil:
		if err := w.lead(ctx, at, nil); err != nil {
			log.Error("giving the users of an iSCSI portal back to it failed, trying on", "error", err)
			return
		}
		p.end.close()
		p.end, p.answered = nil, time.Now()
		log.Info("the iSCSI portal answers again")
	case p.end == nil && time.Since(p.answered) >= w.Patience:
		end, listenErr := listen(at.Addr())
		if listenErr == nil {
			listenErr = w.lead(ctx, at, end)
		}
		if listenErr != nil {
			log.Error("guests can't be told that their iSCSI portal does not answer, trying on",
				"error", errors.Join(err, listenErr))
			end.close()
			return
		}
		p.end = end
		log.Error("the iSCSI portal does not answer: guests that use it have errors of their disks from now on, "+
			"or are stopped, as their disks' error policies say", "since", p.answered, "error", err)
		if err := w.breakOff(at, p.end); err != nil {
			log.Error("breaking off the connections to an iSCSI portal that does not answer failed", "error", err)
		}
	case p.end != nil:
		if err := w.breakOff(at, p.end); err != nil {
			log.Debug("breaking off the connections to an iSCSI portal that does not answer failed", "error", err)
		}
	}
}

// lead leads the machines' connections to a portal to a dead end from now on, or nowhere but there.
func (w *watcher) lead(ctx context.Context, at netip.AddrPort, end *deadEnd) (err error) {
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

// close gives all users back.
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
		w.Logger.Error("giving the users of iSCSI portals back to them failed", "error", err)
	}
	for _, p := range w.portals {
		p.end.close()
	}
}
