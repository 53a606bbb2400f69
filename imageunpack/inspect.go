package imageunpack

import (
	"fmt"
	"io"

	"k8s.io/apimachinery/pkg/api/resource"
)

// sector is the sector size of block devices, in bytes.
const sector = 512

// layout describes a disk by its file's metadata.
type layout struct {
	format Format
	// size is the virtual size, content the most of it that isn't zeros, both in bytes.
	size, content int64
}

// inspect checks a disk and returns its layout. Size is the file's size; maxSize is the maximum of
// that and of the virtual size, in bytes. Errors that don't match ErrUnusable come from r.
func inspect(r io.ReaderAt, size, maxSize int64) (layout, error) {
	if size == 0 {
		return layout{}, fmt.Errorf("%w: build the image again from a file with content", ErrEmpty)
	}
	ours, err := isQCOW2(r, size)
	if err != nil {
		return layout{}, err
	}
	if ours {
		return checkQCOW2(r, size, maxSize)
	}
	if err := refuseForeign(r, size); err != nil {
		return layout{}, err
	}
	if size%sector != 0 {
		return layout{}, fmt.Errorf("%w: a raw disk of %d bytes, which is not a multiple of %d: "+
			"pad it (truncate -s %%%d FILE) if it is complete", ErrSize, size, sector, sector)
	}
	return layout{Raw, size, size}, CheckSize("raw disk", size, maxSize)
}

// CheckSize returns an error if size is over maxSize, the node's maximum. Both are in bytes.
func CheckSize(what string, size, maxSize int64) error {
	if size <= maxSize {
		return nil
	}
	return fmt.Errorf("%w: a %s of %s, but this node allows at most %s: make it smaller "+
		"(qemu-img resize --shrink), or raise vm.max_disk_size in the config of nodevirt-shim",
		ErrSize, what, quantity(size), quantity(maxSize))
}

// quantity formats a number of bytes as in config files.
func quantity(bytes int64) string { return resource.NewQuantity(bytes, resource.BinarySI).String() }
