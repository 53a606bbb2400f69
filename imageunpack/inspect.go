package imageunpack

import (
	"fmt"
	"io"
)

// sector is what block devices count in, in bytes.
const sector = 512

// inspect tells a disk's format and its virtual size in bytes, and refuses what can't be
// attached. Size is the file's, in bytes. Errors that don't match ErrUnusable come from r.
func inspect(r io.ReaderAt, size int64) (Format, int64, error) {
	if size == 0 {
		return "", 0, fmt.Errorf("%w: build the image again from a file with content", ErrEmpty)
	}
	ours, err := isQCOW2(r, size)
	if err != nil {
		return "", 0, err
	}
	if ours {
		virtual, err := checkQCOW2(r, size)
		return QCOW2, virtual, err
	}
	if err := refuseForeign(r, size); err != nil {
		return "", 0, err
	}
	if size%sector != 0 {
		return "", 0, fmt.Errorf("%w: a raw disk of %d bytes, which is no multiple of %d: "+
			"pad it (truncate -s %%%d FILE) if it is complete", ErrSize, size, sector, sector)
	}
	return Raw, size, nil
}
