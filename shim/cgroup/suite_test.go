package cgroup_test

import (
	"testing"

	"github.com/nodevirt/nodevirt/shim/cgroup"
	"github.com/nodevirt/nodevirt/shim/vm/resources"
	"github.com/nodevirt/nodevirt/shim/vm/vmtest"
)

// TestSuite checks that real cgroups are what the fake ones are.
func TestSuite(t *testing.T) {
	pid, end := cgroup.Sleeper(t)
	vmtest.TestGroups(t, resources.Groups{Overhead: 64 << 20}, cgroup.NewParent(t), pid, end)
}
