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
	"net"
	"os"

	"github.com/containerd/errdefs"

	"github.com/nodevirt/nodevirt/imageunpack/expand"
)

const (
	sector = 512
	// headSize is the part of a disk that is written last.
	headSize = 1 << 20
)

// A part of a disk, which is written between two notes, ends after partData bytes that are not zeros, or partSize.
var partData, partSize int64 = 256 << 20, 4 << 30

// ErrUnfit means that the volume can't hold the disk, and that another attempt fails too.
var ErrUnfit = errdefs.ErrInvalidArgument.WithMessage("the volume does not fit the disk")

// Source is a registry disk that has been checked.
type Source struct {
	Tool expand.Tool
	// UID is the user that qemu-nbd runs as, which owns no other files. Started is
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
	// Scratch is a folder for a temporary socket.
	Scratch string
	// Turn waits until a part of the disk may be read and written, and returns a function
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

// write writes all parts after the head, and then the head. It has a turn for each part.
func (w *writer) write(ctx context.Context, s state) error {
	end, err := w.Turn(ctx)
	if err != nil {
		return err
	}
	defer func() { end() }()
	next := func() (err error) {
		end()
		end = func() {}
		turn, err := w.Turn(ctx)
		if err == nil {
			end = turn
		}
		return err
	}
	return expand.Service{
		Tool: w.Tool, UID: w.UID, From: w.File, Format: w.Format, Folder: w.Scratch, Started: w.Started,
	}.Run(ctx, readers+1, func(conns []net.Conn) error {
		from, err := newSource(conns, w.Size)
		if err != nil {
			return err
		}
		return w.fill(ctx, s, from, next)
	})
}

// fill writes the disk, and calls next before each part but the first. It writes both ends of the disk last, when the
// note has reached the volume: without a note, they would make the volume look like a complete disk.
func (w *writer) fill(ctx context.Context, s state, from *source, next func() error) error {
	head, err := from.head()
	if err != nil {
		return err
	}
	tail, end, err := from.tail(int64(len(head)))
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
	synced := false // since this call has begun, and with that the note
	for done = max(done, int64(len(head))); done < end; {
		w.progress(float64(done) / float64(w.Size))
		if done, err = from.read(ctx, done, min(done+partSize, end), w.zero, w.data); err != nil {
			return err
		}
		if done >= end && synced {
			break // the next sync is this part's, too
		}
		if err := w.sync(); err != nil {
			return err
		}
		synced = true
		// The next sync is this note's, too: without it, that part is written again.
		if err := w.note(done); err != nil {
			return err
		}
		if done < end {
			if err := next(); err != nil {
				return err
			}
		}
	}
	if !synced {
		if err := w.sync(); err != nil {
			return err
		}
	}
	return w.finish(head, tail, end)
}

// finish writes the ends of a disk: the head, and the tail to its offset. The first sector is written last and alone:
// a sector is written completely or not at all.
func (w *writer) finish(head, tail []byte, offset int64) error {
	if err := w.data(tail, offset); err != nil {
		return err
	}
	for _, part := range []struct{ from, to int }{{sector, len(head)}, {0, sector}} {
		if _, err := w.volume.WriteAt(head[part.from:part.to], int64(part.from)); err != nil {
			return fmt.Errorf("write the disk's beginning: %w", err)
		}
		if err := w.sync(); err != nil {
			return err
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
