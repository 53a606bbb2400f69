// Package expand makes raw files of registry disks, each for one machine to write.
//
// It owns: the run of qemu-img that converts, without root's rights; the room that
// it takes, which is looked for before; and on a file system with reflinks the
// bases, one expanded disk for each disk of an image, of which machines get clones
// within milliseconds.
//
// It leaves to others: finding and checking the disk, which has to be done before
// (package imageunpack); where a machine's file is and when it goes; which images
// there still are; going on over several calls (package vm).
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

	"golang.org/x/sync/semaphore"
)

// Options say how disks are expanded.
type Options struct {
	// QemuImg is the path of qemu-img.
	QemuImg string
	// Dir is the folder of the bases. It is made, is the caller's alone, and should be
	// on the file system on which machines' files are: nothing is cloned to another one.
	Dir string
	// Limit is how many bytes all bases together may take; 0 keeps none.
	Limit int64
	// Reserve is how many bytes of a file system are left free.
	Reserve int64
	Logger  *slog.Logger
}

// Source is a disk of an image.
type Source struct {
	// File is open for reading, and the caller's. It was checked.
	File *os.File
	// Format is QEMU's word for it: qcow2 or raw.
	Format string
	// Size is the disk's as its guest sees it, Needs the most that its content takes
	// on disk, both in bytes.
	Size, Needs int64
	// Key is what the content is known by.
	Key Key
	// UID is the user that qemu-img runs as, which owns nothing else; 0 is root.
	UID uint32
}

// Progress is how far an expansion is.
type Progress struct {
	// Waiting says that it waits for others to end.
	Waiting bool
	// Done is the part that is done, from 0 to 1.
	Done float64
}

// Expander expands disks. Its methods may be called from any goroutine.
type Expander struct {
	opts   Options
	turns  *semaphore.Weighted // bounds how many qemu-img run at the same time
	room   room
	ctx    context.Context // of what goes on beside the calls
	cancel context.CancelFunc
	wg     sync.WaitGroup

	mu      sync.Mutex
	bases   map[string]*base // by the names of their files
	reflink *bool            // see clones; nil until that is known
}

// New returns an Expander, and removes what one that was killed left half-made.
func New(o Options) (*Expander, error) {
	if err := os.MkdirAll(o.Dir, 0o700); err != nil {
		return nil, fmt.Errorf("make the folder of expanded disks: %w", err)
	}
	e := &Expander{
		opts:  o,
		turns: semaphore.NewWeighted(int64(max(2, runtime.GOMAXPROCS(0)/2))),
		room:  room{reserve: o.Reserve, promised: map[*os.File]int64{}},
		bases: map[string]*base{},
	}
	e.ctx, e.cancel = context.WithCancel(context.Background())
	if err := e.load(); err != nil {
		return nil, err
	}
	if _, err := e.clones(); err != nil && !errors.Is(err, syscall.ENOSPC) {
		return nil, err
	}
	return e, nil
}

// clones tells whether the file system shares data between files. On a full disk that can't be found
// out, and is with a later call.
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

// Close ends what goes on beside the calls.
func (e *Expander) Close() {
	e.cancel()
	e.wg.Wait()
}

// Reflink tells whether machines' files are clones of bases.
func (e *Expander) Reflink() bool {
	yes, err := e.clones()
	return err == nil && yes && e.opts.Limit > 0
}

// Expand makes a new raw file at path, 0600, with the content of s: sparse, and on
// a file system with reflinks as a clone. Tell is called now and then until Expand
// returns. The file is the caller's to delete; one that is there already is an error,
// never replaced. After an error, that of ctx included, nothing is left. Without room
// for all of s it is [syscall.ENOSPC], and nothing was written.
func (e *Expander) Expand(ctx context.Context, s Source, path string, tell func(Progress)) error {
	if !filepath.IsAbs(path) {
		return fmt.Errorf("expand a disk to %q: the path is not absolute", path)
	}
	err := errNoBase
	if e.Reflink() {
		err = e.expandByBase(ctx, s, path, tell)
	}
	if errors.Is(err, errNoBase) {
		err = e.expandInto(ctx, s, path, tell)
	}
	if err != nil {
		return fmt.Errorf("expand the disk of image %s: %w", s.Key.Image, err)
	}
	return nil
}

// expandInto converts s into a new file at path.
func (e *Expander) expandInto(ctx context.Context, s Source, path string, tell func(Progress)) (err error) {
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
	release, err := e.room.promise(f, s.Needs)
	if err != nil {
		return err
	}
	defer release()
	if !e.turns.TryAcquire(1) {
		tell(Progress{Waiting: true})
		if err := e.turns.Acquire(ctx, 1); err != nil {
			return fmt.Errorf("wait for other disks: %w", err)
		}
	}
	defer e.turns.Release(1)
	return e.fill(ctx, s, f, tell)
}

// fill converts s into an empty file.
func (e *Expander) fill(ctx context.Context, s Source, f *os.File, tell func(Progress)) error {
	if err := f.Truncate(s.Size); err != nil {
		return fmt.Errorf("make a file of %d bytes, as large as the disk: %w", s.Size, err)
	}
	if err := f.Chown(int(s.UID), -1); err != nil {
		return err
	}
	clones, err := e.clones()
	if err != nil {
		return err
	}
	c := Conversion{
		QemuImg: e.opts.QemuImg, UID: s.UID,
		From: s.File, Format: s.Format, To: f, Zeroed: true, Offload: clones && sameFileSystem(s.File, f),
	}
	if err := c.Run(ctx, func(done float64) { tell(Progress{Done: done}) }); err != nil {
		return err
	}
	return f.Chown(0, -1)
}
