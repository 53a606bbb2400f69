package report

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"strings"

	"golang.org/x/sys/unix"
)

// Machine is what the figures depend on.
type Machine struct {
	CPUs    int    `json:"cpus"`
	MemMiB  uint64 `json:"memory_mib"`
	Kernel  string `json:"kernel"`
	QEMU    string `json:"qemu"`
	Libvirt string `json:"libvirt"`
}

// ThisMachine looks at the machine. What can't be found out is said so.
func ThisMachine(ctx context.Context) Machine {
	m := Machine{
		CPUs:    runtime.NumCPU(),
		QEMU:    version(ctx, "qemu-system-x86_64", "--version"),
		Libvirt: version(ctx, "libvirtd", "--version"),
		Kernel:  "unknown",
	}
	var info unix.Sysinfo_t
	if unix.Sysinfo(&info) == nil {
		m.MemMiB = info.Totalram * uint64(info.Unit) >> 20
	}
	if text, err := os.ReadFile("/proc/sys/kernel/osrelease"); err == nil {
		m.Kernel = strings.TrimSpace(string(text))
	}
	return m
}

// String is a line for a table.
func (m Machine) String() string {
	return fmt.Sprintf("%d CPUs, %d GiB of memory, Linux %s, QEMU %s, libvirt %s",
		m.CPUs, (m.MemMiB+512)/1024, m.Kernel, m.QEMU, m.Libvirt)
}

// version is the first word of a program's answer that begins with a digit.
func version(ctx context.Context, name string, args ...string) string {
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.Env = append(os.Environ(), "LC_ALL=C")
	out, err := cmd.Output()
	if err != nil {
		return "unknown"
	}
	for word := range strings.FieldsSeq(string(out)) {
		if word[0] >= '0' && word[0] <= '9' {
			return word
		}
	}
	return "unknown"
}
