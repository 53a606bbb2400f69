package disk

import (
	"fmt"
	"os"

	"golang.org/x/sys/unix"
)

// setDirect has files read and written past the node's cache, if the disk asks for that. QEMU from 9.1 on
// takes no other descriptor then, and older ones set the flag themselves. It refuses files that can't be read
// so: QEMU would say that later, and not as clearly.
func setDirect(k Disk, groups map[string][]*os.File) error {
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
		}
	}
	return nil
}
