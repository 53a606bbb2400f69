package shutdown

import (
	"os"
	"strings"
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

// bootIDFile has the kernel's name of its run since the node booted.
const bootIDFile = "/proc/sys/kernel/random/boot_id"

// BootID returns the name that the kernel gave to this run of the node, which no clock changes; empty if it is not known.
func BootID() string {
	text, err := os.ReadFile(bootIDFile)
	if err != nil {
		return ""
	}
	return strings.TrimSpace(string(text))
}
