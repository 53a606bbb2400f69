package shutdown

import (
	"time"

	"golang.org/x/sys/unix"
)

// Booted returns when the node booted, by its present clock; zero if that is not known.
func Booted() time.Time {
	var up unix.Timespec
	if unix.ClockGettime(unix.CLOCK_BOOTTIME, &up) != nil {
		return time.Time{}
	}
	return time.Now().Add(-time.Duration(up.Nano()))
}
