package cgroup

import "testing"

// NewParent names a parent of the test's own, which goes with the test.
func NewParent(t *testing.T) string {
	t.Helper()
	return testParent(t)
}

// Sleeper starts a process, and returns its id and what ends it.
func Sleeper(t *testing.T) (pid int, stop func()) {
	t.Helper()
	cmd := sleeper(t)
	return cmd.Process.Pid, func() { end(cmd) }
}
