package config_test

import (
	"net/netip"
	"testing"

	"gotest.tools/v3/assert"
	"gotest.tools/v3/golden"

	"github.com/nodevirt/nodevirt/test/node/config"
)

func TestTexts(t *testing.T) {
	n := config.Node{
		Bin:      "/src/bin",
		State:    "/state",
		Etc:      "/state/etc",
		Registry: "127.0.0.1:5000",
		Pause:    "127.0.0.1:5000/pause:dev",
		Subnet:   netip.MustParsePrefix("10.1.2.0/24"),
		HostUUID: "a2a7ce2c-51b2-4b8e-9d34-3f3c3f0d8f5b",
	}
	lazy := n
	lazy.Lazy, lazy.Fetch = true, true
	change := func(c map[string]any) { c["vm"].(map[string]any)["accelerator"] = "tcg" }
	for name, text := range map[string]func() (string, error){
		"containerd.toml":      func() (string, error) { return config.Containerd(n) },
		"containerd-lazy.toml": func() (string, error) { return config.Containerd(lazy) },
		"shim-lazy.toml":       func() (string, error) { return config.Shim(lazy, nil) },
		"stargz.toml":          func() (string, error) { return config.Snapshotter(lazy) },
		"hosts.toml":           func() (string, error) { return config.Mirror(n), nil },
		"pods.conflist":        func() (string, error) { return config.CNI(n, nil) },
		"libvirtd.conf":        func() (string, error) { return config.Libvirtd(n), nil },
		"shim.toml":            func() (string, error) { return config.Shim(n, nil) },
		"shim-changed.toml":    func() (string, error) { return config.Shim(n, change) },
		"crictl.yaml":          func() (string, error) { return config.Crictl(), nil },
	} {
		t.Run(name, func(t *testing.T) {
			got, err := text()
			assert.NilError(t, err)
			golden.Assert(t, got, name)
		})
	}
}
