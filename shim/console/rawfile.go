package console

import (
	"errors"
	"fmt"
	"io"
	"os"

	"golang.org/x/sys/unix"
)

// rawFile is what QEMU appends to. It is never truncated: an append between the last read and the
// truncation would be lost. What has been consumed is made a hole instead.
type rawFile struct {
	file  *os.File
	freed int64 // holes reach to here
}

const (
	// freeStep is how much is consumed before it is freed.
	freeStep = 1 << 20
	// freeAlign keeps holes on the borders of pages, where they free what they cover.
	freeAlign = 4 << 10
)

// openRaw refuses anything but a regular file: QEMU's user may own it, and is not trusted.
func openRaw(path string) (*rawFile, error) {
	file, err := os.OpenFile(path, os.O_RDWR|unix.O_NOFOLLOW|unix.O_NONBLOCK, 0)
	if err != nil {
		return nil, fmt.Errorf("open console file: %w", err)
	}
	info, err := file.Stat()
	if err == nil && !info.Mode().IsRegular() {
		err = fmt.Errorf("%s is a %v, want a regular file", path, info.Mode().Type())
	}
	if err != nil {
		_ = file.Close()
		return nil, fmt.Errorf("open console file: %w", err)
	}
	return &rawFile{file: file}, nil
}

func (r *rawFile) size() (int64, error) {
	info, err := r.file.Stat()
	if err != nil {
		return 0, fmt.Errorf("size of console file: %w", err)
	}
	return info.Size(), nil
}

// read fills buf from offset, as far as there are bytes.
func (r *rawFile) read(buf []byte, offset int64) (int, error) {
	n, err := r.file.ReadAt(buf, offset)
	if err != nil && !errors.Is(err, io.EOF) {
		return n, fmt.Errorf("read console file: %w", err)
	}
	return n, nil
}

// data gives the first offset at or behind from that does not lie in a hole, at most size.
func (r *rawFile) data(from, size int64) int64 {
	at, err := unix.Seek(int(r.file.Fd()), from, unix.SEEK_DATA)
	switch {
	case err == nil:
		return at
	case errors.Is(err, unix.ENXIO):
		return size
	default: // the file system knows no holes
		return from
	}
}

// free gives the disk back what lies before offset, in steps. The error is unix.EOPNOTSUPP where
// the file system can't.
func (r *rawFile) free(offset int64) error {
	end := offset / freeAlign * freeAlign
	if end-r.freed < freeStep {
		return nil
	}
	const mode = unix.FALLOC_FL_PUNCH_HOLE | unix.FALLOC_FL_KEEP_SIZE
	if err := unix.Fallocate(int(r.file.Fd()), mode, r.freed, end-r.freed); err != nil {
		return fmt.Errorf("free consumed part of console file: %w", err)
	}
	r.freed = end
	return nil
}
