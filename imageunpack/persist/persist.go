// Package persist writes a registry disk to a volume, once: from then on the volume
// is the disk.
//
// It owns: how a volume tells whether it is a disk already, is being made one, or is
// empty; the writing, which goes on where a process that was killed had come to; and
// the lock that keeps two writers apart. Which volume is whose, and what attaches it,
// is the caller's.
//
// A volume that is being written begins with a note instead of the disk's first
// sector, which is written last: so there is no moment at which a part of a disk
// could be taken for one. The note is the volume's, not the node's, since a volume
// may be written on one node and used on another.
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
	// chunkSize is written between two notes.
	chunkSize = 256 << 20
)

// ErrUnfit says that the volume can't hold the disk, and that trying again won't help.
var ErrUnfit = errdefs.ErrInvalidArgument.WithMessage("the volume does not fit the disk")

// Source is a registry disk. It was checked.
type Source struct {
	// QemuImg is the path of qemu-img, which runs as UID, a user that owns nothing else;
	// 0 is root.
	QemuImg string
	UID     uint32
	// File is open for reading, Format QEMU's word for it, Size the disk's as its guest
	// sees it in bytes.
	File   *os.File
	Format string
	Size   int64
	// Key is what the content is known by. A volume that was begun with another is begun anew.
	Key string
	// Scratch is a folder for a part of the disk at a time.
	Scratch string
}

// Write makes a volume, a regular file or a block device that is open for reading and
// writing, the disk of s, unless it is one already. It holds the volume's lock
// meanwhile. What a call before had written, which was cut off in any way, is not
// written again. Tell is told the part that is done, from 0 to 1.
func Write(ctx context.Context, volume *os.File, s Source, tell func(done float64)) (err error) {
	locked, unlock, err := lock(volume)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, unlock()) }()
	w := writer{Source: s, volume: locked, tell: tell}
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

// Look tells whether a volume is a disk, neither empty nor one that is being made one,
// and of the latter how many bytes of the disk are on it, from its beginning.
func Look(volume *os.File) (disk bool, written int64, err error) {
	s, err := (&writer{volume: volume}).look()
	return s.disk, s.done, err
}

// writer is one writing of a volume.
type writer struct {
	Source
	volume *os.File
	device bool
	tell   func(float64)
}

// write writes all but the head, part by part, and then the head.
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
		w.tell(float64(done) / float64(w.Size))
		n := min(chunkSize, w.Size-done)
		if err := w.part(ctx, done, n); err != nil {
			return err
		}
		done += n
		if err := w.note(done); err != nil {
			return err
		}
	}
	// All but the first sector, then the sector alone: that one is written as a whole or not at all.
	for _, part := range []struct{ from, to int }{{sector, len(head)}, {0, sector}} {
		if _, err := w.volume.WriteAt(head[part.from:part.to], int64(part.from)); err != nil {
			return fmt.Errorf("write the disk's beginning: %w", err)
		}
		if err := w.volume.Sync(); err != nil {
			return fmt.Errorf("write the disk's beginning: %w", err)
		}
	}
	w.tell(1)
	return nil
}

// begin makes the volume one that is being written.
func (w *writer) begin() error {
	if !w.device { // a file has no old content then
		if err := errors.Join(w.volume.Truncate(0), w.volume.Truncate(w.Size)); err != nil {
			return fmt.Errorf("make the volume's file: %w", err)
		}
	}
	return w.note(0)
}

// head is the disk's beginning. A volume with one of zeros would be taken for empty.
func (w *writer) head(ctx context.Context) ([]byte, error) {
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
		return nil, fmt.Errorf("%w: the disk begins with zeros, so that a volume with it could not be told from an empty one: "+
			"partition it, or attach it without a volume", ErrUnfit)
	}
	return head, nil
}

// convert makes a part of the disk a raw file, without a name.
func (w *writer) convert(ctx context.Context, offset, length int64) (_ *os.File, err error) {
	scratch, err := os.CreateTemp(w.Scratch, ".part-")
	if err != nil {
		return nil, fmt.Errorf("make a file for a part of the disk: %w", err)
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, scratch.Close())
		}
	}()
	if err := errors.Join(os.Remove(scratch.Name()), scratch.Truncate(length), scratch.Chown(int(w.UID), -1)); err != nil {
		return nil, fmt.Errorf("make a file for a part of the disk: %w", err)
	}
	err = expand.Conversion{
		QemuImg: w.QemuImg, UID: w.UID, From: w.File, Format: w.Format, To: scratch, Zeroed: true,
		Offset: offset, Length: length,
	}.Run(ctx, func(float64) {})
	return scratch, err
}
