// Package console carries what guests print on their serial consoles into their containers' logs.
//
// QEMU itself appends to a raw file, so that a console outlives the shim and everything else. This
// package owns the way from there to the log that CRI calls log_path: the log's format, its
// rotation when the kubelet asks for it, prompts that end in no newline, and the raw file's use of
// the disk. Interactive attachment goes by a socket of QEMU's and is not dealt with here; who makes
// the raw file, and removes it with the container's folder, is the caller.
package console

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"path/filepath"
	"sync"
	"time"

	"github.com/fsnotify/fsnotify"
)

// gather is how long the first byte waits for others: a serial port writes them one by one.
const gather = 20 * time.Millisecond

var (
	// ErrNotFollowed says that no such console is followed.
	ErrNotFollowed = errors.New("console is not followed")
	// ErrClosed is what Logs answers after Close.
	ErrClosed = errors.New("console logs are closed")
)

// Console names the files of one VM container's console. The paths are absolute, and no two
// consoles share one.
type Console struct {
	ID       string // of the container
	Raw      string // QEMU appends to it; must exist, in a folder that QEMU's user can't write
	Position string // made here: how far Raw has been consumed, for the next shim
	Log      string // the container's log_path
}

// Logs follows any number of consoles with two goroutines and one inotify instance; a console on
// which nothing is printed costs no CPU. Its methods may be called concurrently.
type Logs struct {
	log      *slog.Logger
	limit    int64
	watcher  *fsnotify.Watcher
	schedule *schedule
	stop     chan struct{}
	done     sync.WaitGroup

	mu     sync.Mutex
	byID   map[string]*follower
	byRaw  map[string]*follower
	closed bool
}

// New starts the following of consoles. A log that grows over limit bytes without being rotated is
// set aside, in place of the one that was before; a limit of 0 is none. Close ends it.
func New(limit int64, log *slog.Logger) (*Logs, error) {
	watcher, err := fsnotify.NewWatcher()
	if err != nil {
		return nil, fmt.Errorf("watch consoles: %w: if inotify instances ran out, raise fs.inotify.max_user_instances", err)
	}
	l := &Logs{
		log: log, limit: limit, watcher: watcher, schedule: newSchedule(), stop: make(chan struct{}),
		byID: map[string]*follower{}, byRaw: map[string]*follower{},
	}
	l.done.Go(l.watch)
	l.done.Go(l.work)
	return l, nil
}

// Follow begins to carry c into its log, or goes on where a former Logs left off. The log is there
// when Follow returns, though nothing may have been printed. Following the same console again does
// nothing.
func (l *Logs) Follow(c Console) error {
	c.Raw = filepath.Clean(c.Raw)
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closed {
		return fmt.Errorf("follow console of %s: %w", c.ID, ErrClosed)
	}
	if old, ok := l.byID[c.ID]; ok {
		if old.Console == c {
			return nil
		}
		return fmt.Errorf("follow console of %s: it is followed already, with other files", c.ID)
	}
	if old, ok := l.byRaw[c.Raw]; ok {
		return fmt.Errorf("follow console of %s: %s is the console file of %s", c.ID, c.Raw, old.ID)
	}
	f, err := openFollower(c, l.limit, l.log.With("container", c.ID))
	if err != nil {
		return fmt.Errorf("follow console of %s: %w", c.ID, err)
	}
	if err := l.expect(f); err != nil {
		return errors.Join(fmt.Errorf("follow console of %s: %w", c.ID, err), f.close())
	}
	l.byID[c.ID], l.byRaw[c.Raw] = f, f
	l.schedule.in(&f.slot, 0)
	return nil
}

// Reopen closes the log of a console and opens its path anew: CRI's ReopenContainerLog, after the
// kubelet has renamed the file. No record is torn by it. The error wraps ErrNotFollowed for an
// unknown id; on any other the old file goes on.
func (l *Logs) Reopen(id string) error {
	f, err := l.find(id)
	if err != nil {
		return fmt.Errorf("reopen container log of %s: %w", id, err)
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.closed {
		return fmt.Errorf("reopen container log of %s: %w", id, ErrNotFollowed)
	}
	if err := f.reopen(); err != nil {
		return fmt.Errorf("reopen container log of %s: %w", id, err)
	}
	l.schedule.in(&f.slot, 0)
	return nil
}

// Finish carries the last of a console whose guest has ended into its log, syncs it and forgets the
// console. On an error, as when the disk is full or ctx ends, the console is followed on, and
// Finish can be called again. A console that is not followed counts as finished.
func (l *Logs) Finish(ctx context.Context, id string) error {
	f, err := l.find(id)
	if errors.Is(err, ErrNotFollowed) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("finish console of %s: %w", id, err)
	}
	s := new(scratch)
	for more := true; more; {
		if err := ctx.Err(); err != nil {
			return fmt.Errorf("finish console of %s: %w", id, err)
		}
		if more, err = l.finishTurn(f, s); err != nil {
			return fmt.Errorf("finish console of %s: %w", id, err)
		}
	}
	return nil
}

// finishTurn does one piece of Finish, so that the lock is not held for all of a long console.
func (l *Logs) finishTurn(f *follower, s *scratch) (more bool, err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.closed {
		return false, nil
	}
	if more, err = f.finish(s, time.Now()); more || err != nil {
		return more, err
	}
	l.forget(f)
	return false, f.leave()
}

// Close stops. What was printed and not yet logged stays in the raw files for the next Logs.
func (l *Logs) Close() error {
	l.mu.Lock()
	if l.closed {
		l.mu.Unlock()
		return nil
	}
	l.closed = true
	l.mu.Unlock()

	close(l.stop)
	errs := []error{l.watcher.Close()}
	l.done.Wait()
	for _, f := range l.all() {
		f.mu.Lock()
		if !f.closed {
			errs = append(errs, f.leave())
		}
		f.mu.Unlock()
		l.schedule.leave(&f.slot)
	}
	return errors.Join(errs...)
}
