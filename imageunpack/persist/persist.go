// Package persist writes a registry disk to a volume once. From then on the volume is the disk.
//
// It owns the state of a volume, which is empty, in progress or a disk; the writing, which resumes
// where a killed process stopped; and the lock against a second writer. It leaves to its caller
// which volume belongs to which VM, and attaching the volume.
//
// A volume in progress begins with a note instead of the disk's first sector, which is written
// last. So an incomplete disk is never taken for a complete one. The note is on the volume and not
// on the node, because another node may continue or use the volume.
package persist

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"

	"github.com/containerd/errdefs"

	"github.com/nodevirt/nodevirt/imageunpack/expand"
)

const (
	sector = 512
	// headSize is the part of a disk that is written last.
	headSize = 1 << 20
	// chunkSize is how many bytes are written between two notes.
	chunkSize = 256 << 20
)

// ErrUnfit means that the volume can't hold the disk, and that another attempt fails too.
var ErrUnfit = errdefs.ErrInvalidArgument.WithMessage("the volume does not fit the disk")

// Source is a registry disk that has been checked.
type Source struct {
	Tool expand.Tool
	// UID is the user that qemu-img runs as, which owns no other files. Started is
	// [expand.Conversion.Started].
	UID     uint32
	Started func(pid int) error
	// File is open for reading. Format is its format, by QEMU's name, and Size the virtual size
	// in bytes.
	File   *os.File
	Format string
	Size   int64
	// Key identifies the content. A volume in progress with another key is written from the start.
	Key string
	// Scratch is a folder for a temporary file with one part of the disk.
	Scratch string
	// Turn waits until a part of the disk may be converted and written, and returns a function
	// that ends the turn. Write takes a turn for each part.
	Turn func(context.Context) (end func(), err error)
}

// Write writes the disk of s to a volume, unless that is a disk already. The volume is a regular file or
// a block device, open for reading and writing. Write holds its lock. It resumes after the part that an
// interrupted call has written. It calls progress with the completed part, from 0 to 1.
func Write(ctx context.Context, volume *os.File, s Source, progress func(done float64)) (err error) {
	locked, unlock, err := lock(volume)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, unlock()) }()
	w := writer{Source: s, volume: locked, progress: progress}
	if w.device, err = isDevice(locked); err != nil {
		return err
	}
	state, err := w.look()
	if err != nil || state.disk {
		return err
	}
	if err := w.fits(); err != nil {
		return err
	}
	return w.write(ctx, state)
}

// Look reports whether a volume is a disk, neither empty nor in progress. For a volume in progress it
// returns how many bytes from the beginning of the disk are on it.
func Look(volume *os.File) (disk bool, written int64, err error) {
	s, err := (&writer{volume: volume}).look()
	return s.disk, s.done, err
}

// writer writes one disk to a volume.
type writer struct {
	Source
	volume   *os.File
	device   bool
	progress func(float64)
}

// write writes all parts after the head, and then the head.
func (w *writer) write(ctx context.Context, s state) error {
	head, err := w.head(ctx)
	if err != nil {
		return err
	}
	done := s.done
	if s.key != w.Key || s.size != w.Size || s.volume < w.Size {
		done = 0
		if err := w.begin(); err != nil {
			return err
		}
	}
	for done = max(done, int64(len(head))); done < w.Size; {
		w.progress(float64(done) / float64(w.Size))
		n := min(chunkSize, w.Size-done)
		if err := w.part(ctx, done, n); err != nil {
			return err
		}
		done += n
		if err := w.note(done); err != nil {
			return err
		}
	}
	// The first sector is written last and alone: a sector is written completely or not at all.
	for _, part := range []struct{ from, to int }{{sector, len(head)}, {0, sector}} {
		if _, err := w.volume.WriteAt(head[part.from:part.to], int64(part.from)); err != nil {
			return fmt.Errorf("write the disk's beginning: %w", err)
		}
		if err := w.volume.Sync(); err != nil {
			return fmt.Errorf("write the disk's beginning: %w", err)
		}
	}
	w.progress(1)
	return nil
}

// begin puts the volume in progress.
func (w *writer) begin() error {
	if !w.device { // removes the old content of a file
		if err := errors.Join(w.volume.Truncate(0), w.volume.Truncate(w.Size)); err != nil {
			return fmt.Errorf("create the volume's file: %w", err)
		}
	}
	return w.note(0)
}

// head returns the beginning of the disk. It must not be zeros: such a volume would be taken for empty.
func (w *writer) head(ctx context.Context) ([]byte, error) {
	end, err := w.Turn(ctx)
	if err != nil {
		return nil, err
	}
	defer end()
	scratch, err := w.convert(ctx, 0, min(headSize, w.Size))
	if err != nil {
		return nil, err
	}
	defer scratch.Close()
	head, err := io.ReadAll(scratch)
	if err != nil {
		return nil, fmt.Errorf("read the disk's beginning: %w", err)
	}
	if isZero(head) {
		return nil, fmt.Errorf("%w: the disk begins with zeros, so a volume with it would look empty: "+
			"partition it, or attach it without a volume", ErrUnfit)
	}
	return head, nil
}

// convert converts a part of the disk into a raw file without a name.
func (w *writer) convert(ctx context.Context, offset, length int64) (_ *os.File, err error) {
	scratch, err := os.CreateTemp(w.Scratch, ".part-")
	if err != nil {
		return nil, fmt.Errorf("create a file for a part of the disk: %w", err)
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, scratch.Close())
		}
	}()
	if err := errors.Join(os.Remove(scratch.Name()), scratch.Truncate(length), scratch.Chown(int(w.UID), -1)); err != nil {
		return nil, fmt.Errorf("create a file for a part of the disk: %w", err)
	}
	err = expand.Conversion{
		Tool: w.Tool, UID: w.UID, Started: w.Started, From: w.File, Format: w.Format, To: scratch, Zeroed: true,
		Offset: offset, Length: length,
	}.Run(ctx, func(float64) {})
	return scratch, err
}
