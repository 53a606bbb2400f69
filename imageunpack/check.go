package imageunpack

import (
	"fmt"
	"io"
	"strings"
)

// Check returns a disk's format and its virtual size in bytes. It makes the same checks as
// [Unpacker.Acquire]. Size is the file's size and maxSize the maximum of a disk, both in bytes. Errors
// match [ErrUnusable], or come from r.
func Check(r io.ReaderAt, size, maxSize int64) (Format, int64, error) {
	f, err := inspect(r, size, maxSize)
	return f.format, f.size, err
}

// CheckOverlay checks a file that should be what a VM made of an overlay or an empty disk of
// this package, and returns its virtual size in bytes. Another program may have written it: so the
// checks are those of [Check], but that the backing file may be named as [Unpacker.Overlay] and
// [Unpacker.VolumeOverlay] do. No program can open these names.
func CheckOverlay(r io.ReaderAt, size, maxSize int64) (int64, error) {
	found, err := isQCOW2(r, size)
	if err != nil {
		return 0, err
	}
	if !found {
		return 0, fmt.Errorf("%w: it is not qcow2", ErrUnsupported)
	}
	h, err := readHeader(r, size)
	if err != nil {
		return 0, err
	}
	if h.backingOffset != 0 || h.backingSize != 0 {
		name, err := h.backingName(r, size)
		if err != nil {
			return 0, err
		}
		if !strings.HasPrefix(name, imageName) && name != volumeName {
			return 0, fmt.Errorf("%w: %.80q", ErrBackingFile, name)
		}
		h.backingOffset, h.backingSize, h.overlay = 0, 0, true
	}
	l, err := h.check(r, size, maxSize)
	return l.size, err
}

// maxBackingName is QEMU's limit, in bytes.
const maxBackingName = 1023

// backingName reads the name of the backing file.
func (h *qcow2Header) backingName(r io.ReaderAt, size int64) (string, error) {
	if h.backingSize > maxBackingName {
		return "", fmt.Errorf("%w: its name has %d bytes", ErrBackingFile, h.backingSize)
	}
	if err := checkWithin("name of a backing file", h.backingOffset, uint64(h.backingSize), uint64(size)); err != nil {
		return "", err
	}
	b := make([]byte, h.backingSize)
	err := readFull(r, b, int64(h.backingOffset))
	return string(b), err
}
