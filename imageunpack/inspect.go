package imageunpack

import (
	"fmt"
	"io"

	"k8s.io/apimachinery/pkg/api/resource"
)

// sector is what block devices count in, in bytes.
const sector = 512

// inspect tells a disk's format and its virtual size in bytes, and refuses what can't be
// attached. Size is the file's, maxSize the largest that it and the virtual size may be, in bytes.
// Errors that don't match ErrUnusable come from r.
func inspect(r io.ReaderAt, size, maxSize int64) (Format, int64, error) {
	if size == 0 {
		return "", 0, fmt.Errorf("%w: build the image again from a file with content", ErrEmpty)
	}
	ours, err := isQCOW2(r, size)
	if err != nil {
		return "", 0, err
	}
	if ours {
		virtual, err := checkQCOW2(r, size, maxSize)
		return QCOW2, virtual, err
	}
	if err := refuseForeign(r, size); err != nil {
		return "", 0, err
	}
	if size%sector != 0 {
		return "", 0, fmt.Errorf("%w: a raw disk of %d bytes, which is no multiple of %d: "+
			"pad it (truncate -s %%%d FILE) if it is complete", ErrSize, size, sector, sector)
	}
	return Raw, size, CheckSize("raw disk", size, maxSize)
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
