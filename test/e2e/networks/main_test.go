package networks

import (
	"context"
	"fmt"
	"net/netip"
	"os"
	"testing"

	"github.com/nodevirt/nodevirt/test/bindingplugin"
	"github.com/nodevirt/nodevirt/test/node"
)

// shared is the node of all tests. It is set before the first test runs.
var shared *node.Node

func TestMain(m *testing.M) {
	bindingplugin.Main()
	if err := linkPlugin(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	o := node.Options{Subnet: netip.MustParsePrefix("10.98.0.0/24"), CNI: withMultus}
	code := node.Main(m, o, func(_ context.Context, n *node.Node) error {
		shared = n
		return nil
	})
	_ = os.RemoveAll(pluginDir) // only a link
	os.Exit(code)
}

// pluginDir has the tests' CNI plug-in. It is set before the node starts.
var pluginDir string

// linkPlugin makes the program of the tests a CNI plug-in.
func linkPlugin() (err error) {
	if pluginDir, err = os.MkdirTemp("", "nodevirt-cni-"); err != nil {
		return err
	}
	return bindingplugin.Link(pluginDir)
}
