package persist

import (
	"errors"
	"fmt"
	"io"

	"golang.org/x/sys/unix"
)

// block is the least run of zeros that is not written, in bytes: that of a qcow2 cluster.
const block = 64 << 10

// sync returns when all that was written has reached the volume.
func (w *writer) sync() error {
	if err := unix.Fdatasync(int(w.volume.Fd())); err != nil {
		return fmt.Errorf("write the volume: %w", err)
	}
	return nil
}

// data writes bytes to offset, and zeros in them as such.
func (w *writer) data(p []byte, offset int64) error {
	for len(p) > 0 {
		zeros := isZero(p[:min(block, len(p))])
		n := min(block, len(p))
		for n < len(p) && isZero(p[n:min(n+block, len(p))]) == zeros {
			n = min(n+block, len(p))
		}
		var err error
		if zeros {
			err = w.zero(offset, int64(n))
		} else if _, err = w.volume.WriteAt(p[:n], offset); err == nil {
			// The volume's disk works while more is read, and not only at the sync.
			err = unix.SyncFileRange(int(w.volume.Fd()), offset, int64(n), unix.SYNC_FILE_RANGE_WRITE)
		}
		if err != nil {
			return fmt.Errorf("write the volume: %w", err)
		}
		p, offset = p[n:], offset+int64(n)
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
		return fmt.Errorf("zero %d bytes at %d: %w", length, offset, err)
	}
	return nil
}

// zeros is an endless reader of zeros.
type zeros struct{}

func (zeros) Read(p []byte) (int, error) {
	clear(p)
	return len(p), nil
}
