package persist

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"

	"golang.org/x/sys/unix"
)

// part writes length bytes of the disk from offset on and syncs them.
func (w *writer) part(ctx context.Context, offset, length int64) error {
	endTurn, err := w.Turn(ctx)
	if err != nil {
		return err
	}
	defer endTurn()
	scratch, err := w.convert(ctx, offset, length)
	if err != nil {
		return err
	}
	defer scratch.Close()
	for at := int64(0); at < length; {
		if err := ctx.Err(); err != nil {
			return context.Cause(ctx)
		}
		data, err := scratch.Seek(at, unix.SEEK_DATA)
		if errors.Is(err, unix.ENXIO) {
			data, err = length, nil // only a hole
		}
		if err != nil {
			return fmt.Errorf("find the data in a part of the disk: %w", err)
		}
		if err := w.zero(offset+at, data-at); err != nil {
			return err
		}
		if data == length {
			break
		}
		end, err := scratch.Seek(data, unix.SEEK_HOLE)
		if err != nil {
			return fmt.Errorf("find the data in a part of the disk: %w", err)
		}
		if err := w.copy(scratch, data, offset+data, end-data); err != nil {
			return err
		}
		at = end
	}
	if err := unix.Fdatasync(int(w.volume.Fd())); err != nil {
		return fmt.Errorf("write the volume: %w", err)
	}
	return nil
}

func (w *writer) copy(scratch *os.File, from, to, length int64) error {
	if _, err := io.CopyBuffer(io.NewOffsetWriter(w.volume, to), io.NewSectionReader(scratch, from, length), make([]byte, 1<<20)); err != nil {
		return fmt.Errorf("write the volume: %w", err)
	}
	return nil
}

// zero makes a range read as zeros. In a file the range has no other content.
func (w *writer) zero(offset, length int64) error {
	if !w.device || length == 0 {
		return nil
	}
	err := unix.Fallocate(int(w.volume.Fd()), unix.FALLOC_FL_ZERO_RANGE|unix.FALLOC_FL_KEEP_SIZE, offset, length)
	if errors.Is(err, unix.EOPNOTSUPP) {
		_, err = io.CopyN(io.NewOffsetWriter(w.volume, offset), zeros{}, length)
	}
	if err != nil {
		return fmt.Errorf("write zeros to the volume: %w", err)
	}
	return nil
}

// zeros is an endless reader of zeros.
type zeros struct{}

func (zeros) Read(p []byte) (int, error) {
	clear(p)
	return len(p), nil
}
