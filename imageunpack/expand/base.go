package expand

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync/atomic"
	"time"

	"github.com/opencontainers/go-digest"
)

// Key identifies the content of a disk.
type Key struct {
	// Image is the digest of the image's config, Path the disk's path in the image.
	Image, Path string
}

const (
	suffix     = ".raw" // of a complete base that has been synced
	madeSuffix = ".new" // of a base that is being made, or is not synced yet
)

// BaseName returns the name of a base's file. It consists of the image's digest, by which Collect
// finds the image, and a short hash of the path.
func (k Key) BaseName() (string, error) {
	d, err := digest.Parse(k.Image)
	if err != nil {
		return "", fmt.Errorf("image id %q: %w", k.Image, err)
	}
	sum := sha256.Sum256([]byte(k.Path))
	return d.Algorithm().String() + "-" + d.Encoded() + "-" + hex.EncodeToString(sum[:8]) + suffix, nil
}

// base is an expanded disk that is never written, only cloned.
//
//	made (job) ──▶ usable (.new) ──▶ synced (.raw)
//	     └──▶ removed, if no call waits for it any more, or it fails
type base struct {
	name string
	path string // where its file is now
	size int64  // bytes that it takes, or may take while it is being made
	used time.Time
	busy int                 // clones that are being made, and calls that wait for it
	held map[string]struct{} // files of VMs that are clones of it

	done     chan struct{} // closed when it is usable or failed
	err      error         // set before
	cancel   context.CancelFunc
	progress atomic.Pointer[Progress]
}

// errNoBase means that a VM's file must be made without a base.
var errNoBase = errors.New("no base can be kept")

// expandByBase makes a clone of the source's base, which it makes or waits for first.
func (e *Expander) expandByBase(ctx context.Context, s Source, path string, progress func(Progress)) error {
	b, err := e.base(s) //nolint:contextcheck // the first caller may give up while others wait
	if err != nil {
		return err
	}
	defer e.leave(b)
	if err := b.wait(ctx, progress); err != nil {
		return err
	}
	f, err := e.open(b)
	if err != nil {
		return err
	}
	defer f.Close()
	if err := clone(f, path); err != nil {
		return err
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	b.held[path] = struct{}{}
	return nil
}

// base returns the base of a source, which may still be in progress. The caller must call
// [Expander.leave].
func (e *Expander) base(s Source) (*base, error) {
	name, err := s.Key.BaseName()
	if err != nil {
		return nil, err
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	b := e.bases[name]
	if b == nil {
		if !e.evict(s.Needs) {
			return nil, errNoBase
		}
		if b, err = e.begin(s, name); err != nil {
			return nil, err
		}
	}
	b.busy++
	return b, nil
}

// leave ends a use of a base. A base in progress that no call waits for is cancelled.
func (e *Expander) leave(b *base) {
	e.mu.Lock()
	defer e.mu.Unlock()
	b.busy--
	b.used = time.Now()
	_ = os.Chtimes(b.path, time.Time{}, b.used) // for the next shim; a wrong order does no harm
	if b.busy > 0 {
		return
	}
	select {
	case <-b.done:
	default:
		b.cancel()
		e.drop(b)
	}
}

// open opens a base's file, which may be renamed at the same time.
func (e *Expander) open(b *base) (*os.File, error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	return os.Open(b.path)
}

// drop forgets a base. The caller holds e.mu.
func (e *Expander) drop(b *base) {
	if e.bases[b.name] == b {
		delete(e.bases, b.name)
	}
}

// wait waits until a base is usable.
func (b *base) wait(ctx context.Context, progress func(Progress)) error {
	ticks := time.NewTicker(100 * time.Millisecond)
	defer ticks.Stop()
	for {
		select {
		case <-b.done:
			return b.err
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-ticks.C:
			if p := b.progress.Load(); p != nil {
				progress(*p)
			}
		}
	}
}

// load finds the existing bases and removes unfinished ones.
func (e *Expander) load() error {
	entries, err := os.ReadDir(e.opts.Dir)
	if err != nil {
		return fmt.Errorf("find expanded disks: %w", err)
	}
	for _, entry := range entries {
		path := filepath.Join(e.opts.Dir, entry.Name())
		info, err := entry.Info()
		if err != nil {
			return fmt.Errorf("find expanded disks: %w", err)
		}
		if _, ok := imageOf(entry.Name()); !ok || !info.Mode().IsRegular() {
			if err := os.RemoveAll(path); err != nil && !unwritable(err) { // the next start removes it
				return fmt.Errorf("remove an unfinished disk: %w", err)
			}
			continue
		}
		done := make(chan struct{})
		close(done)
		e.bases[entry.Name()] = &base{
			name: entry.Name(), path: path, size: taken(info), used: info.ModTime(),
			held: map[string]struct{}{}, done: done, cancel: func() {},
		}
	}
	return nil
}
