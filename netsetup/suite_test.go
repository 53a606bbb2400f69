package netsetup_test

import (
	"testing"

	"github.com/nodevirt/nodevirt/netsetup"
	"github.com/nodevirt/nodevirt/shim/vm/vmtest"
)

// TestSuite checks that real networks are what the fake ones are.
func TestSuite(t *testing.T) {
	s, netns := netsetup.NewNode(t)
	vmtest.TestNetwork(t, s, s, netns)
}
