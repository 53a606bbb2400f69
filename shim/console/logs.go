// Package console copies the output of guests' serial consoles to their containers' logs.
//
// QEMU appends to a raw file, so that no output is lost while the shim does not
// run. The package owns the copy from the raw file to CRI's log_path: the log's
// format, its rotation when the kubelet requests it, prompts without a newline, and
// the raw file's disk space. It leaves interactive attachment to package terminal,
// and the creation and removal of the raw file to the caller.
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

// gather is how long the first byte waits for more, since a serial port writes single bytes.
const gather = 20 * time.Millisecond

var (
	// ErrNotFollowed is returned for a console that is not followed.
	ErrNotFollowed = errors.New("console is not followed")
	// ErrClosed is returned after Close.
	ErrClosed = errors.New("console logs are closed")
)

// Console names the files of one VM container's console. The paths are absolute, and no two
// consoles share one.
type Console struct {
	ID       string // of the container
	Raw      string // QEMU appends to it; must exist, in a folder that QEMU's user can't write
	Position string // made here: how far Raw has been consumed, for the next shim
	Log      string // the container's log_path
	Unlogged bool   // Log exists, and nothing is written to it
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

// New returns Logs, which the caller must close. A log that grows over limit bytes
// without a rotation by the kubelet is set aside and replaces the one set aside
// before; a limit of 0 is none.
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

// Follow starts to copy c to its log, from where an earlier Logs stopped. The log
// exists when Follow returns. Following the same console again does nothing.
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
		return fmt.Errorf("follow console of %s: already followed with other files", c.ID)
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

// Reopen closes the log of a console and opens its path again, for CRI's
// ReopenContainerLog after the kubelet has renamed the file. It splits no record.
// The error wraps ErrNotFollowed for an unknown ID; after any other error the old
// file stays in use.
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

// Finish copies the rest of a console whose guest has ended to its log, syncs the
// log and stops following. After an error, for example because the disk is full or
// ctx ends, the console is still followed, and Finish may be called again. A
// console that is not followed counts as finished.
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

// Drop stops following a console, and returns how many bytes of its output are not
// in its log: those that Finish could not copy. A console that is not followed has none.
func (l *Logs) Drop(id string) (lost int64, err error) {
	f, err := l.find(id)
	if errors.Is(err, ErrNotFollowed) {
		return 0, nil
	}
	if err != nil {
		return 0, fmt.Errorf("drop console of %s: %w", id, err)
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.closed {
		return 0, nil
	}
	if size, err := f.raw.size(); err == nil {
		lost = max(size-f.at.offset, 0)
	}
	l.forget(f)
	if err := f.close(); err != nil {
		return lost, fmt.Errorf("drop console of %s: %w", id, err)
	}
	return lost, nil
}

// finishTurn does a bounded part of Finish, so that it does not hold the lock for long.
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

// Close stops copying. Output that is not logged yet stays in the raw files for the next Logs.
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
