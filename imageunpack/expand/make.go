package expand

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"golang.org/x/sys/unix"
)

// begin starts making a base. The caller holds e.mu.
func (e *Expander) begin(s Source, name string) (*base, error) {
	// The first caller may give up while others wait.
	fd, err := unix.FcntlInt(s.File.Fd(), unix.F_DUPFD_CLOEXEC, 0)
	if err != nil {
		return nil, fmt.Errorf("keep the image's file open: %w", err)
	}
	s.File = os.NewFile(uintptr(fd), s.File.Name())
	b := &base{
		name: name, size: s.Needs, used: time.Now(),
		held: map[string]struct{}{}, done: make(chan struct{}),
	}
	f, err := os.CreateTemp(e.opts.Dir, name+".*"+madeSuffix) // the file of a cancelled one may still exist
	if err != nil {
		return nil, errors.Join(err, s.File.Close())
	}
	b.path = f.Name()
	ctx, cancel := context.WithCancel(e.ctx)
	b.cancel = cancel
	e.bases[name] = b
	e.wg.Go(func() {
		defer cancel()
		defer s.File.Close()
		defer f.Close()
		e.make(ctx, s, b, f)
	})
	return b, nil
}

// make makes a base, releases the calls that wait for it, and then syncs it.
func (e *Expander) make(ctx context.Context, s Source, b *base, f *os.File) {
	err := e.fillBase(ctx, s, b, f)
	e.mu.Lock()
	if b.err = err; err != nil {
		e.drop(b)
	} else {
		b.size = allocated(f)
	}
	close(b.done)
	e.mu.Unlock()
	if err == nil {
		err = e.keep(b, f)
	}
	if err != nil {
		e.remove(b)
	}
}

func (e *Expander) fillBase(ctx context.Context, s Source, b *base, f *os.File) error {
	b.progress.Store(&Progress{Waiting: true})
	end, err := e.turns.Take(ctx, s.Namespace, func() {})
	if err != nil {
		return err
	}
	defer end()
	ctx, release, err := e.room.promise(ctx, f, s.Needs)
	if err != nil {
		return err
	}
	defer release()
	b.progress.Store(&Progress{})
	begun := time.Now()
	if err := e.fill(ctx, s, f, func(p Progress) { b.progress.Store(&p) }); err != nil {
		return err
	}
	if err := f.Chmod(0o400); err != nil {
		return err
	}
	e.opts.Logger.Info("expanded a disk for clones", "image", s.Key.Image, "disk", s.Key.Path,
		"bytes", allocated(f), "duration", time.Since(begun))
	return nil
}

// keep gives a synced base its final name. If that fails, the next shim makes the base again.
func (e *Expander) keep(b *base, f *os.File) error {
	if err := f.Sync(); err != nil {
		return err
	}
	path := filepath.Join(e.opts.Dir, b.name)
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.bases[b.name] != b {
		return nil // removed by Collect
	}
	if err := os.Rename(b.path, path); err != nil {
		return err
	}
	b.path = path
	dir, err := os.Open(e.opts.Dir)
	if err != nil {
		return err
	}
	defer dir.Close()
	return dir.Sync()
}

// remove removes a base and its file.
func (e *Expander) remove(b *base) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.delete(b)
}

// delete is remove for a caller that holds e.mu.
func (e *Expander) delete(b *base) {
	e.drop(b)
	if err := os.Remove(b.path); err != nil && !errors.Is(err, os.ErrNotExist) {
		e.opts.Logger.Warn("can't remove an expanded disk, retrying at the next start of the shim", "error", err)
	}
}
