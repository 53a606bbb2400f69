package shim

import (
	"os"

	"golang.org/x/sys/unix"
)

// lockFile takes an exclusive lock, which ends with the process.
func lockFile(f *os.File) error {
	return unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB)
}
