package csi

import (
	"errors"
	"fmt"
	"io"
	"os"

	"golang.org/x/sys/unix"
)

// copyData makes of an empty file a copy of another one's first bytes, as many as bytes says. Holes stay
// holes.
func copyData(to *os.File, from string, bytes int64) error {
	f, err := os.Open(from)
	if err != nil {
		return fmt.Errorf("copy: %w", err)
	}
	defer f.Close()
	err = unix.IoctlFileClone(int(to.Fd()), int(f.Fd()))
	if errors.Is(err, unix.EOPNOTSUPP) || errors.Is(err, unix.ENOTTY) {
		err = copySparse(to, f, bytes)
	}
	if err != nil {
		return fmt.Errorf("copy %s: %w", from, err)
	}
	return to.Truncate(bytes)
}

func copySparse(to, from *os.File, bytes int64) error {
	for at := int64(0); at < bytes; {
		data, err := from.Seek(at, unix.SEEK_DATA)
		if errors.Is(err, unix.ENXIO) {
			return nil // the rest is a hole
		}
		if err != nil {
			return err
		}
		if at, err = from.Seek(data, unix.SEEK_HOLE); err != nil {
			return err
		}
		if _, err := from.Seek(data, io.SeekStart); err != nil {
			return err
		}
		if _, err := to.Seek(data, io.SeekStart); err != nil {
			return err
		}
		if _, err := io.CopyN(to, from, at-data); err != nil {
			return err
		}
	}
	return nil
}
