package e2e

import (
	"strconv"
	"strings"
	"testing"

	"gotest.tools/v3/assert"
)

// usage is the content of a cgroup's files, in ns and bytes.
type usage struct{ cpu, memory, workingSet uint64 }

func readUsage(t *testing.T, group string) usage {
	t.Helper()
	u := usage{
		cpu:    number(t, group, "cpuacct%s/cpuacct.usage", "%s/cpu.stat"),
		memory: number(t, group, "memory%s/memory.usage_in_bytes", "%s/memory.current"),
	}
	for line := range strings.Lines(setting(t, group, "memory%s/memory.stat", "%s/memory.stat")) {
		name, value, _ := strings.Cut(strings.TrimSpace(line), " ")
		// On v1 there is total_inactive_file, behind the group's own.
		if strings.HasSuffix(name, "inactive_file") {
			n, err := strconv.ParseUint(value, 10, 64)
			assert.NilError(t, err)
			u.workingSet = u.memory - n
		}
	}
	return u
}

// number is the only one of a cgroup's file, or v2's usage_usec in ns.
func number(t *testing.T, group, v1, v2 string) uint64 {
	t.Helper()
	text := setting(t, group, v1, v2)
	unit := uint64(1)
	if usec, ok := strings.CutPrefix(text, "usage_usec "); ok {
		text, _, _ = strings.Cut(usec, "\n")
		unit = 1000
	}
	n, err := strconv.ParseUint(strings.TrimSpace(text), 10, 64)
	assert.NilError(t, err)
	return n * unit
}

// between wants a figure within 1 % of those that were read before and after it.
func between(t *testing.T, what string, got, before, after uint64) {
	t.Helper()
	low, high := min(before, after), max(before, after)
	if got < low-low/100 || got > high+high/100 || got == 0 {
		t.Errorf("%s: %d, but the cgroup had %d before and %d after", what, got, before, after)
	}
}
