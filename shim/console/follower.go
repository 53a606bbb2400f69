package console

import (
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"
)

const (
	// turnSize bounds the work of one turn, in bytes of console output.
	turnSize = 32 << 10
	// promptAfter is the silence after which an unfinished line is logged as it is.
	promptAfter = time.Second
	// retryAfter is the pause after a failed read or write.
	retryAfter = 5 * time.Second
	// maxLag bounds how many unread bytes a guest may be ahead. Beyond it all but
	// the last keepLag bytes are dropped, and the log says so.
	maxLag  = 64 << 20
	keepLag = 1 << 20
	// Kept is how many bytes before its end a raw file keeps, even if they are
	// logged, for clients that attach to the console.
	Kept = 256 << 10
	// asideSuffix is the suffix of a log that was set aside at its limit. The
	// kubelet treats it as a log that it has rotated itself, and compresses and removes it.
	asideSuffix = ".1"
)

// follower copies one console from its raw file to its log.
type follower struct {
	Console
	limit   int64 // of the log, in bytes; 0 is none
	log     *slog.Logger
	slot    slot
	watched atomic.Bool // an event reports new output

	mu       sync.Mutex // guards all below
	raw      *rawFile
	position *positionFile
	out      *logFile
	lines    lines
	at       position // what is logged; lines.pending follows at.offset in the raw file
	heard    time.Time
	resting  time.Time // no read or write before this: the last one failed
	trouble  string    // of the last turn, so that it is logged once
	silent   bool      // the last turn has found nothing new
	noHoles  bool
	shrunk   bool // the raw file has, and the shim's log says so
	closed   bool
	// unwatched is why the console cannot be watched.
	unwatched error
	// unsettled is why the position could not be saved, or the raw file's space not
	// be freed. Logging continues; a shim that starts after a crash would repeat a part of the log.
	unsettled error
}

// scratch is what a turn works with; consoles share it.
type scratch struct {
	in      [turnSize]byte // of the raw file
	records []byte         // of the log
}

func openFollower(c Console, limit int64, log *slog.Logger) (*follower, error) {
	f := &follower{Console: c, limit: limit, log: log, lines: lines{max: maxLine}}
	f.slot.console = f
	if err := f.open(); err != nil {
		return nil, errors.Join(err, f.close())
	}
	return f, nil
}

func (f *follower) open() (err error) {
	if f.raw, err = openRaw(f.Raw); err != nil {
		return err
	}
	var damaged error
	if f.position, damaged, err = openPosition(f.Position); err != nil {
		return err
	}
	if damaged != nil {
		f.log.Warn("console position lost, a part of the log may repeat", "file", f.Position, "err", damaged)
	}
	if f.out, err = openLog(f.Log); err != nil {
		return err
	}
	return f.resume()
}

// resume continues from the saved position, and truncates what the last shim logged
// after that. If the position is in a hole, it was saved before the hole was made,
// or lost, and resume skips the hole.
func (f *follower) resume() error {
	size, err := f.raw.size()
	if err != nil {
		return err
	}
	f.at = f.position.saved
	f.lines.open = f.at.open
	if f.at.offset <= size {
		f.at.offset = f.raw.data(f.at.offset, size)
	}
	if err := f.out.cut(f.at.log); err != nil {
		return err
	}
	if f.at.log, err = f.out.end(); err != nil {
		return err
	}
	return f.position.save(f.at)
}

// turn reads at most turnSize bytes and logs the lines that they complete. It
// returns the time until the console needs its next turn even if the guest is
// silent; negative is never.
func (f *follower) turn(s *scratch, now time.Time) time.Duration {
	if f.closed {
		return -1
	}
	if rest := f.resting.Sub(now); rest > 0 {
		return rest
	}
	n, err := f.move(s, now)
	f.silent = err == nil && n == 0
	if f.silent {
		err = f.prompt(s, now)
	}
	f.note(errors.Join(err, f.unsettled, f.unwatched))
	switch {
	case err != nil:
		f.resting = now.Add(retryAfter)
		return retryAfter
	case n == len(s.in):
		return 0
	case n > 0:
		return gather
	case f.lines.flushable():
		return max(promptAfter-now.Sub(f.heard), time.Millisecond)
	default:
		f.lines.trim()
		return -1
	}
}

// move reads once and writes the records of what it read.
func (f *follower) move(s *scratch, now time.Time) (int, error) {
	if err := f.skip(s); err != nil {
		return 0, err
	}
	if err := f.confess(s, now); err != nil {
		return 0, err
	}
	held := len(f.lines.pending)
	n, err := f.raw.read(s.in[:], f.at.offset+int64(held))
	if n == 0 || err != nil {
		return 0, err
	}
	f.heard = now
	s.records = f.lines.feed(s.records[:0], s.in[:n], now)
	return n, f.write(s, f.at.after(held+n-len(f.lines.pending)))
}

// prompt logs an unfinished line once the guest has been silent for long enough.
func (f *follower) prompt(s *scratch, now time.Time) error {
	if !f.lines.flushable() || now.Sub(f.heard) < promptAfter {
		return nil
	}
	held := len(f.lines.pending)
	s.records = f.lines.flush(s.records[:0], now)
	return f.write(s, f.at.after(held-len(f.lines.pending)))
}

// write appends s.records to the log and advances the console to next. After an
// error the console reads the same bytes again.
func (f *follower) write(s *scratch, next position) error {
	next.log = f.at.log
	if len(s.records) > 0 && !f.Unlogged {
		var err error
		if next.log, err = f.append(s.records); err != nil {
			f.lines.reset()
			f.lines.open = f.at.open
			return err
		}
	}
	next.open = f.lines.open
	f.at = next
	f.settle()
	return nil
}

// append writes to the log. It sets a log that would grow over its limit aside
// first: otherwise a guest that prints endlessly could fill the disk if the kubelet
// does not rotate the log.
func (f *follower) append(records []byte) (logEnd, error) {
	if size := f.at.log.size; f.limit > 0 && size > 0 && size+int64(len(records)) > f.limit {
		if err := f.out.setAside(f.Log); err != nil {
			return f.at.log, err
		}
		if err := f.reopen(); err != nil {
			return f.at.log, err
		}
	}
	return f.out.append(records)
}

// settle saves the position, and only then frees what lies before it.
func (f *follower) settle() {
	if f.unsettled = f.position.save(f.at); f.unsettled != nil || f.noHoles {
		return
	}
	err := f.raw.free(f.at.offset - Kept)
	if errors.Is(err, unix.EOPNOTSUPP) || errors.Is(err, unix.ENOSYS) {
		f.noHoles = true
		f.log.Warn("the file system cannot free logged console output: it is freed when the container is removed",
			"file", f.Raw)
		return
	}
	f.unsettled = err
}

// note logs when errors begin, change and end.
func (f *follower) note(err error) {
	var trouble string
	if err != nil {
		trouble = err.Error()
	}
	if trouble == f.trouble {
		return
	}
	f.trouble = trouble
	if err == nil {
		f.log.Info("console log works again")
		return
	}
	f.log.Warn("cannot write console log, will retry", "every", retryAfter, "err", err)
}

// finish logs the raw file to its last byte. more reports that another call is needed.
func (f *follower) finish(s *scratch, now time.Time) (more bool, err error) {
	if n, err := f.move(s, now); err != nil || n > 0 {
		return true, err
	}
	held := len(f.lines.pending)
	s.records = f.lines.flushAll(s.records[:0], now)
	if err := f.write(s, f.at.after(held)); err != nil {
		return true, err
	}
	if err := f.out.file.Sync(); err != nil {
		return true, fmt.Errorf("sync container log: %w", err)
	}
	if err := f.position.save(f.at); err != nil {
		return true, err
	}
	return false, nil
}

// reopen opens a new log at the same path. After an error the old one stays in use.
func (f *follower) reopen() error {
	out, err := openLog(f.Log)
	if err != nil {
		return err
	}
	end, err := out.end()
	if err != nil {
		return errors.Join(err, out.close())
	}
	old := f.out
	f.out, f.at.log = out, end
	f.resting = time.Time{} // rotation may have made room
	f.settle()
	return old.close()
}

// leave closes the files so that a later follower continues from here.
func (f *follower) leave() error {
	return errors.Join(f.position.save(f.at), f.close())
}

func (f *follower) close() error {
	f.closed = true
	var errs []error
	if f.raw != nil {
		errs = append(errs, f.raw.file.Close())
	}
	if f.position != nil {
		errs = append(errs, f.position.file.Close())
	}
	if f.out != nil {
		errs = append(errs, f.out.close())
	}
	return errors.Join(errs...)
}
