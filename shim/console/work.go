package console

import (
	"errors"
	"maps"
	"slices"
	"time"

	"github.com/fsnotify/fsnotify"
)

// watch turns events into turns. It does no work of its own, so that the kernel's queue stays
// short.
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
				l.schedule.in(&f.slot, gather)
			}
		case err, ok := <-l.watcher.Errors:
			if !ok {
				return
			}
			// Which consoles the lost events belonged to is unknown.
			if !errors.Is(err, fsnotify.ErrEventOverflow) {
				l.log.Warn("watching consoles", "err", err)
			}
			for _, f := range l.all() {
				l.schedule.in(&f.slot, gather)
			}
		}
	}
}

// work gives consoles their turns, one after the other, with one scratch for all.
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
		f.mu.Lock()
		next := f.turn(s, time.Now())
		f.mu.Unlock()
		if next >= 0 {
			l.schedule.in(&f.slot, next)
		}
	}
}

// find looks a console up.
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

// forget takes a finished console out. f.mu is held.
func (l *Logs) forget(f *follower) {
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.byID, f.ID)
	delete(l.byRaw, f.Raw)
	l.schedule.leave(&f.slot)
	// The watch is gone already when the file is, or the watcher is closed: then there is nothing
	// to do.
	_ = l.watcher.Remove(f.Raw)
}

func (l *Logs) all() []*follower {
	l.mu.Lock()
	defer l.mu.Unlock()
	return slices.Collect(maps.Values(l.byID))
}
