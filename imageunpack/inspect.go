package imageunpack

import (
	"fmt"
	"io"

	"k8s.io/apimachinery/pkg/api/resource"
)

// sector is what block devices count in, in bytes.
const sector = 512

// layout is what a disk's file says of it.
type layout struct {
	format Format
	// size is what the guest sees, content the most of it that isn't zeros, both in bytes.
	size, content int64
}

// inspect tells a disk's layout, and refuses what can't be attached. Size is the file's, maxSize
// the largest that it and the virtual size may be, in bytes. Errors that don't match ErrUnusable
// come from r.
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
		return layout{}, fmt.Errorf("%w: a raw disk of %d bytes, which is no multiple of %d: "+
			"pad it (truncate -s %%%d FILE) if it is complete", ErrSize, size, sector, sector)
	}
	return layout{Raw, size, size}, CheckSize("raw disk", size, maxSize)
}

// CheckSize refuses a size that is over what a node takes, both in bytes.
func CheckSize(what string, size, maxSize int64) error {
	if size <= maxSize {
		return nil
	}
	return fmt.Errorf("%w: a %s of %s, and this node takes %s at the most: make it smaller "+
		"(qemu-img resize --shrink), or raise vm.max_disk_size in the config of nodevirt-shim",
		ErrSize, what, quantity(size), quantity(maxSize))
}

// quantity is a number of bytes as config files write it.
func quantity(bytes int64) string { return resource.NewQuantity(bytes, resource.BinarySI).String() }
