// Package expand converts registry disks into raw files, each for one VM to write.
//
// It owns the run of qemu-img, which has no root rights; the check for enough disk space before
// that; and, on a file system with reflinks, the bases: one expanded disk for each disk of an
// image, of which VMs get clones within milliseconds.
//
// It leaves to others finding and checking the disk, which must come first (package imageunpack);
// the place and the removal of a VM's file; which images still exist; and continuing over several
// calls (package vm).
package expand

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"runtime"
	"sync"
	"syscall"

	"github.com/nodevirt/nodevirt/internal/bounds"
	"github.com/nodevirt/nodevirt/internal/turns"
)

// Turns are those of a node's conversions.
type Turns = turns.Turns

// NewTurns returns Turns for n conversions at the same time. One namespace leaves a turn to others, if there are several.
// A turn ends after [bounds.TurnTime].
func NewTurns(n int) *Turns {
	return turns.New("the conversion of other disks", n, max(1, n-1)).For(bounds.TurnTime)
}

// Options are the settings of an Expander.
type Options struct {
	// Tool converts.
	Tool Tool
	// Dir is the folder of the bases, for the caller alone. New creates it. It should be on the
	// file system of the VMs' files: clones to another file system are impossible.
	Dir string
	// Limit is how many bytes all bases together may take; 0 means no bases.
	Limit int64
	// Reserve is how many bytes of a file system stay free.
	Reserve int64
	Logger  *slog.Logger
}

// Source is a disk of an image.
type Source struct {
	// File is open for reading, has been checked, and stays the caller's.
	File *os.File
	// Format is the file's format, by QEMU's name: qcow2 or raw.
	Format string
	// Size is the virtual size, Needs the most that the content takes on disk, both in bytes.
	Size, Needs int64
	// Key identifies the content.
	Key Key
	// UID is the user that qemu-img runs as, which owns no other files.
	UID uint32
	// Started is [Conversion.Started].
	Started func(pid int) error
	// Namespace is the one that asks for the disk. Namespaces take turns.
	Namespace string
}

// Progress is the progress of an expansion.
type Progress struct {
	// Waiting means that the expansion waits for others to end.
	Waiting bool
	// Done is the completed part, from 0 to 1.
	Done float64
}

// Expander expands disks. Its methods may be called from any goroutine.
type Expander struct {
	opts   Options
	turns  *Turns
	room   room
	ctx    context.Context // of the work in the background
	cancel context.CancelFunc
	wg     sync.WaitGroup

	mu      sync.Mutex
	bases   map[string]*base // by the names of their files
	reflink *bool            // see clones; nil until known
}

// New returns an Expander. It removes the unfinished files of one that was killed.
func New(o Options) (*Expander, error) {
	if err := os.MkdirAll(o.Dir, 0o700); err != nil {
		return nil, fmt.Errorf("create the folder of expanded disks: %w", err)
	}
	e := &Expander{
		opts:  o,
		turns: NewTurns(max(2, runtime.GOMAXPROCS(0)/2)),
		room:  room{reserve: o.Reserve, promised: map[*os.File]promise{}},
		bases: map[string]*base{},
	}
	e.ctx, e.cancel = context.WithCancel(context.Background())
	if err := e.load(); err != nil {
		return nil, err
	}
	if _, err := e.clones(); err != nil && !unwritable(err) {
		return nil, err
	}
	return e, nil
}

// unwritable reports whether an error says that nothing can be written to the folder now.
func unwritable(err error) bool {
	return errors.Is(err, syscall.ENOSPC) || errors.Is(err, syscall.EDQUOT) || errors.Is(err, syscall.EROFS)
}

// clones reports whether the file system shares data between files. On a full or read-only disk the test
// fails, and a later call repeats it.
func (e *Expander) clones() (bool, error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.reflink == nil {
		yes, err := canClone(e.opts.Dir)
		if err != nil {
			return false, err
		}
		e.reflink = &yes
	}
	return *e.reflink, nil
}

// Close ends the work in the background.
func (e *Expander) Close() {
	e.cancel()
	e.wg.Wait()
}

// Turns returns the turns of this node's conversions, for those that do not go through Expand.
func (e *Expander) Turns() *Turns { return e.turns }

// Reserve keeps needs bytes of f's file system free for what the caller writes to f, beside what other expansions still
// need and Options.Reserve. Call release when f is complete or removed. Without enough space the error is
// [syscall.ENOSPC]. So is the cause of the returned context's end: the caller writes slowly, and others need the space.
func (e *Expander) Reserve(ctx context.Context, f *os.File, needs int64) (_ context.Context, release func(), err error) {
	return e.room.promise(ctx, f, needs)
}

// Reflink reports whether VMs' files are clones of bases.
func (e *Expander) Reflink() bool {
	yes, err := e.clones()
	return err == nil && yes && e.opts.Limit > 0
}

// Expand makes a new raw file at path, 0600, with the content of s: sparse, and on
// a file system with reflinks as a clone. It calls progress from time to time until it
// returns. The caller must delete the file. If a file exists at path, Expand fails and keeps
// that file. After an error, which may be that of ctx, no file is left. Without enough space
// for all of s the error is [syscall.ENOSPC], and nothing was written.
func (e *Expander) Expand(ctx context.Context, s Source, path string, progress func(Progress)) error {
	if !filepath.IsAbs(path) {
		return fmt.Errorf("expand a disk to %q: the path is not absolute", path)
	}
	err := errNoBase
	if e.Reflink() {
		err = e.expandByBase(ctx, s, path, progress)
	}
	if errors.Is(err, errNoBase) {
		err = e.expandInto(ctx, s, path, progress)
	}
	if err != nil {
		return fmt.Errorf("expand the disk of image %s: %w", s.Key.Image, err)
	}
	return nil
}

// expandInto converts s into a new file at path.
func (e *Expander) expandInto(ctx context.Context, s Source, path string, progress func(Progress)) (err error) {
	f, err := os.OpenFile(path, os.O_CREATE|os.O_EXCL|os.O_RDWR, 0o600)
	if err != nil {
		return err
	}
	defer func() {
		err = errors.Join(err, f.Close())
		if err != nil {
			err = errors.Join(err, os.Remove(path))
		}
	}()
	end, err := e.turns.Take(ctx, s.Namespace, func() { progress(Progress{Waiting: true}) })
	if err != nil {
		return err
	}
	defer end()
	// What waits for its turn keeps no space from others.
	ctx, release, err := e.room.promise(ctx, f, s.Needs)
	if err != nil {
		return err
	}
	defer release()
	return e.fill(ctx, s, f, progress)
}

// fill converts s into an empty file.
func (e *Expander) fill(ctx context.Context, s Source, f *os.File, progress func(Progress)) error {
	if err := f.Truncate(s.Size); err != nil {
		return fmt.Errorf("create a file of %d bytes, the size of the disk: %w", s.Size, err)
	}
	if err := f.Chown(int(s.UID), -1); err != nil {
		return err
	}
	clones, err := e.clones()
	if err != nil {
		return err
	}
	c := Conversion{
		Tool: e.opts.Tool, UID: s.UID, Started: s.Started,
		From: s.File, Format: s.Format, To: f, Zeroed: true, Offload: clones && sameFileSystem(s.File, f),
	}
	if err := c.Run(ctx, func(done float64) { progress(Progress{Done: done}) }); err != nil {
		return err
	}
	return f.Chown(0, -1)
}
