package bindingplugin

import (
	"fmt"
	"maps"
	"os"
	"path/filepath"

	"github.com/nodevirt/nodevirt/shim/vmspec"
)

// name is the plug-in's, by which CNI finds it in its folder.
const name = "e2e-plugged"

// Link makes the program of the tests a plug-in in a folder, which [Multus] gets.
func Link(dir string) error {
	self, err := os.Executable()
	if err == nil {
		err = os.Symlink(self, filepath.Join(dir, name))
	}
	if err != nil {
		return fmt.Errorf("make the tests' CNI plug-in: %w", err)
	}
	return nil
}

// Network returns the configuration of a network on a bridge of the node. An instance's network of this name
// is on it.
func Network(network, mode, bridge string) Config {
	return Config{CNIVersion: version, Name: network, Type: name, Mode: mode, Bridge: bridge, Interface: vmspec.PluginInterface(network)}
}

// version is that of CNI which Multus and its delegates speak.
const version = "0.4.0"

// Multus has the real Multus make the pod's networks, by the plug-ins of CNI and those in a folder: eth0 as
// the list has it, and then those of delegates. It reads them from its own configuration, where a cluster
// has it ask the API server.
func Multus(list map[string]any, folder string, delegates ...any) {
	first := list["plugins"].([]map[string]any)[0]
	first["name"], first["cniVersion"] = "eth0", version
	clear(list)
	maps.Copy(list, map[string]any{
		"cniVersion": version, "name": "pods",
		"plugins": []map[string]any{{
			"type": "multus", "binDir": folder, "cniDir": "/run/multus", "delegates": append([]any{first}, delegates...),
		}},
	})
}
