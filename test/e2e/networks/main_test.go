package networks

import (
	"context"
	"net/netip"
	"os"
	"testing"

	"github.com/nodevirt/nodevirt/test/node"
)

// shared is the node of all tests. It is set before the first test runs.
var shared *node.Node

func TestMain(m *testing.M) {
	o := node.Options{Subnet: netip.MustParsePrefix("10.98.0.0/24"), CNI: withMultus}
	os.Exit(node.Main(m, o, func(_ context.Context, n *node.Node) error {
		shared = n
		return nil
	}))
}
