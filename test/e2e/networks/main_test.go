package networks

import (
	"context"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"testing"

	"github.com/nodevirt/nodevirt/test/node"
)

// shared is the node of all tests. It is set before the first test runs.
var shared *node.Node

func TestMain(m *testing.M) {
	if os.Getenv("CNI_COMMAND") != "" {
		os.Exit(plugin())
	}
	if err := linkPlugin(); err != nil {
		fmt.Fprintln(os.Stderr, "make the tests' CNI plug-in:", err)
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
func linkPlugin() error {
	self, err := os.Executable()
	if err != nil {
		return err
	}
	if pluginDir, err = os.MkdirTemp("", "nodevirt-cni-"); err != nil {
		return err
	}
	return os.Symlink(self, filepath.Join(pluginDir, pluginName))
}
