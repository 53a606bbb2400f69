package disk

import (
	"fmt"
	"os"

	"golang.org/x/sys/unix"
)

// checkDirect refuses files that can't be read past the node's cache, if the disk asks
// for that: QEMU would say so later, and not as clearly.
func checkDirect(k Disk, groups map[string][]*os.File) error {
	if k.Cache != "none" {
		return nil
	}
	for _, files := range groups {
		for _, f := range files {
			flags, err := unix.FcntlInt(f.Fd(), unix.F_GETFL, 0)
			if err != nil {
				return fmt.Errorf("read the flags of the disk's file: %w", err)
			}
			if _, err := unix.FcntlInt(f.Fd(), unix.F_SETFL, flags|unix.O_DIRECT); err != nil {
				return fmt.Errorf("%w: cache none: the file system of %s does not support direct I/O (%w); use writethrough or writeback",
					ErrVolume, f.Name(), err)
			}
			if _, err := unix.FcntlInt(f.Fd(), unix.F_SETFL, flags); err != nil {
				return fmt.Errorf("restore the flags of the disk's file: %w", err)
			}
		}
	}
	return nil
}
