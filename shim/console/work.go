package console

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/fsnotify/fsnotify"
)

// watch converts events to turns. It does no other work, so that the kernel's queue stays short.
func (l *Logs) watch() {
	for {
		select {
		case event, ok := <-l.watcher.Events:
			if !ok {
				return
			}
			l.mu.Lock()
			f := l.byRaw[event.Name]
			l.mu.Unlock()
			if f != nil {
				l.wake(f)
			}
		case err, ok := <-l.watcher.Errors:
			if !ok {
				return
			}
			// It is not known which consoles the lost events belong to.
			if !errors.Is(err, fsnotify.ErrEventOverflow) {
				l.log.Warn("cannot watch consoles", "err", err)
			}
			for _, f := range l.all() {
				l.schedule.in(&f.slot, gather)
			}
		}
	}
}

// work runs the consoles' turns, one after the other, with one scratch for all.
func (l *Logs) work() {
	s := new(scratch)
	for {
		select {
		case <-l.stop:
			return
		case <-l.schedule.ready:
		}
		f := l.schedule.pop()
		if f == nil {
			continue
		}
		if next := l.turn(f, s); next >= 0 {
			l.schedule.in(&f.slot, next)
		}
	}
}

// wake schedules a turn of a console. Further turns follow until the guest is
// silent. The console is not watched meanwhile, since each byte would cause an
// event, and a guest that prints endlessly would keep a CPU busy.
func (l *Logs) wake(f *follower) {
	if f.watched.Swap(false) {
		_ = l.watcher.Remove(f.Raw) // fails where the file has gone
	}
	l.schedule.in(&f.slot, gather)
}

// turn runs a turn of a console, and returns the time until the next one; negative is until wake.
func (l *Logs) turn(f *follower, s *scratch) time.Duration {
	f.mu.Lock()
	defer f.mu.Unlock()
	next := f.turn(s, time.Now())
	if f.closed || !f.silent || f.watched.Load() {
		return next
	}
	err := l.expect(f)
	if errors.Is(err, fsnotify.ErrClosed) { // so are the consoles, in a moment
		return -1
	}
	if f.unwatched = err; err != nil {
		f.note(err)
		return retryAfter
	}
	return 0 // something may have been printed before the watch
}

// expect watches f for new output.
func (l *Logs) expect(f *follower) error {
	f.watched.Store(true)
	if err := l.watcher.Add(f.Raw); err != nil {
		f.watched.Store(false)
		return fmt.Errorf("watch %s: %w; if inotify watches ran out, raise fs.inotify.max_user_watches", f.Raw, err)
	}
	return nil
}

// find returns the follower of a console.
func (l *Logs) find(id string) (*follower, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closed {
		return nil, ErrClosed
	}
	if f, ok := l.byID[id]; ok {
		return f, nil
	}
	return nil, ErrNotFollowed
}

// forget removes a finished console. The caller holds f.mu.
func (l *Logs) forget(f *follower) {
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.byID, f.ID)
	delete(l.byRaw, f.Raw)
	l.schedule.leave(&f.slot)
	// It fails if the file was removed or the watcher is closed, which both end the watch.
	_ = l.watcher.Remove(f.Raw)
}

func (l *Logs) all() []*follower {
	l.mu.Lock()
	defer l.mu.Unlock()
	return slices.Collect(maps.Values(l.byID))
}
