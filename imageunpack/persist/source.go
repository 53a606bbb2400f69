package persist

import (
	"context"
	"fmt"
	"net"

	"golang.org/x/sync/errgroup"

	"github.com/nodevirt/nodevirt/imageunpack/nbd"
)

const (
	// readers is how many pieces of a disk are read and written at the same time.
	readers = 4
	// pieceSize bounds a piece, in bytes.
	pieceSize = 1 << 20
)

// source reads a disk from an NBD server.
type source struct {
	status *nbd.Client
	data   [readers]*nbd.Client
	size   int64
}

// newSource asks a server, which must have a disk of size bytes, by readers+1 connections.
func newSource(conns []net.Conn, size int64) (s *source, err error) {
	s = &source{size: size}
	if s.status, err = nbd.Open(conns[0], "", nbd.ContextAllocation); err != nil {
		return nil, err
	}
	for i := range s.data {
		if s.data[i], err = nbd.Open(conns[i+1], ""); err != nil {
			return nil, err
		}
	}
	if got := s.status.Size(); got < size {
		return nil, fmt.Errorf("%w: the disk has %d bytes, and %d were found before", ErrUnfit, got, size)
	}
	return s, nil
}

// head returns the beginning of the disk. It must not be zeros: such a volume would be taken for empty.
func (s *source) head() ([]byte, error) {
	head := make([]byte, min(headSize, s.size))
	if err := s.data[0].Read(head, 0); err != nil {
		return nil, fmt.Errorf("read the disk's beginning: %w", err)
	}
	if isZero(head) {
		return nil, fmt.Errorf("%w: the disk begins with zeros, so a volume with it would look empty: "+
			"partition it, or attach it without a volume", ErrUnfit)
	}
	return head, nil
}

// tail returns the end of the disk behind its head, and the offset of that.
func (s *source) tail(head int64) (tail []byte, offset int64, err error) {
	offset = max(head, s.size-headSize)
	tail = make([]byte, s.size-offset)
	if len(tail) == 0 {
		return nil, offset, nil
	}
	if err := s.data[0].Read(tail, offset); err != nil {
		return nil, 0, fmt.Errorf("read the disk's end: %w", err)
	}
	return tail, offset, nil
}

// piece is a part of a disk.
type piece struct{ offset, length int64 }

// read calls zeros for the ranges that are zeros, one after the other, and data for all others, several at a time.
// The bytes are data's until it returns. read ends at end, or after partData bytes of data, and returns where.
func (s *source) read(
	ctx context.Context, at, end int64, zeros func(offset, length int64) error, data func(p []byte, offset int64) error,
) (next int64, err error) {
	group, ctx := errgroup.WithContext(ctx)
	pieces := make(chan piece)
	for _, client := range s.data {
		group.Go(func() error {
			buffer := make([]byte, pieceSize)
			for p := range pieces {
				b := buffer[:p.length]
				if err := client.Read(b, p.offset); err != nil {
					return err
				}
				if err := data(b, p.offset); err != nil {
					return err
				}
			}
			return nil
		})
	}
	group.Go(func() (err error) {
		defer close(pieces)
		next, err = s.split(ctx, at, end, zeros, pieces)
		return err
	})
	if err := group.Wait(); err != nil {
		return 0, err
	}
	return next, nil
}

// split sends what is not zeros in pieces, and returns where read ends.
func (s *source) split(ctx context.Context, at, end int64, zeros func(offset, length int64) error, pieces chan<- piece) (int64, error) {
	var sent int64
	for at < end && sent < partData {
		statuses, err := s.status.Status(at, end-at)
		if err != nil {
			return 0, err
		}
		for _, e := range statuses[nbd.ContextAllocation] {
			if e.Flags&nbd.Zero != 0 {
				if err := zeros(at, e.Length); err != nil {
					return 0, err
				}
				at += e.Length
				continue
			}
			for to := at + e.Length; at < to && sent < partData; {
				p := piece{at, min(pieceSize, to-at)}
				select {
				case pieces <- p:
				case <-ctx.Done():
					return 0, context.Cause(ctx)
				}
				at += p.length
				sent += p.length
			}
			if sent >= partData {
				break
			}
		}
	}
	return at, nil
}
