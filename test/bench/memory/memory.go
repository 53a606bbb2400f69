// Package memory reads a process's memory use from the kernel.
package memory

import (
	"fmt"
	"os"
	"strconv"
	"strings"
)

// Mebibytes reads a field of a file of /proc/PID that counts in kB, such as Pss in smaps_rollup.
func Mebibytes(pid int, file, field string) (float64, error) {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/%s", pid, file))
	if err != nil {
		return 0, fmt.Errorf("read memory of process %d: %w", pid, err)
	}
	for line := range strings.Lines(string(text)) {
		if f := strings.Fields(line); len(f) >= 2 && f[0] == field+":" {
			n, err := strconv.ParseFloat(f[1], 64)
			return n / 1024, err
		}
	}
	return 0, fmt.Errorf("read memory of process %d: no %s in %s", pid, field, file)
}

// Anonymous is how much of a process's mappings of a file, in MiB, is its own copy. The name of the file
// contains a text.
func Anonymous(pid int, name string) (float64, error) {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/smaps", pid))
	if err != nil {
		return 0, fmt.Errorf("read memory of process %d: %w", pid, err)
	}
	sum, mapped, found := 0.0, false, false
	for line := range strings.Lines(string(text)) {
		f := strings.Fields(line)
		if len(f) > 0 && strings.Contains(f[0], "-") { // the addresses of the next mapping
			mapped = strings.Contains(line, name)
			found = found || mapped
		}
		if !mapped || len(f) < 2 || f[0] != "Anonymous:" {
			continue
		}
		n, err := strconv.ParseFloat(f[1], 64)
		if err != nil {
			return 0, fmt.Errorf("read memory of process %d: %w", pid, err)
		}
		sum += n / 1024
	}
	if !found {
		return 0, fmt.Errorf("read memory of process %d: it has not mapped %s", pid, name)
	}
	return sum, nil
}

// PSS is a process's memory, in MiB, with its share of what it has in common with others.
func PSS(pid int) (float64, error) { return Mebibytes(pid, "smaps_rollup", "Pss") }
