package console

import (
	"errors"
	"fmt"
	"io"
	"os"

	"golang.org/x/sys/unix"
)

// rawFile is the file that QEMU appends to. It is never truncated, since an append
// between the last read and the truncation would be lost. Consumed parts become holes instead.
type rawFile struct {
	file  *os.File
	freed int64 // holes reach to here
}

const (
	// freeStep is the least part to free, in bytes.
	freeStep = 1 << 20
	// freeAlign aligns holes with pages, so that they free all that they cover.
	freeAlign = 4 << 10
)

// openRaw opens a regular file and refuses anything else, since QEMU's user, which
// is not trusted, may own the file.
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

// read fills buf from offset up to the end of the file.
func (r *rawFile) read(buf []byte, offset int64) (int, error) {
	n, err := r.file.ReadAt(buf, offset)
	if err != nil && !errors.Is(err, io.EOF) {
		return n, fmt.Errorf("read console file: %w", err)
	}
	return n, nil
}

// data returns the first offset from from on that is not in a hole, at most size.
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

// free frees the space before offset, in steps. The error is unix.EOPNOTSUPP if the
// file system does not support that.
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
