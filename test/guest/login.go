package guest

import (
	"context"
	"embed"
	"path/filepath"
	"slices"
	"strings"
)

// The files by which a guest with a login differs from Tiny.
//
//go:embed login
var loginFiles embed.FS

// Flavour is a distribution whose console a guest with a login imitates.
type Flavour string

// The flavours that KubeVirt's tests log in to.
const (
	Alpine Flavour = "alpine" // as root, without a password
	Cirros Flavour = "cirros" // as cirros, with the password gocubsgo
	Fedora Flavour = "fedora" // as fedora, with the password fedora
)

// TinyWithLogin returns the path of a disk as Tiny's, whose guest asks for a login on its console and
// prompts as a distribution does. With the agent it needs 112 MiB of memory.
func TinyWithLogin(ctx context.Context, o Options, flavour Flavour, agent bool) (string, error) {
	name := string(flavour)
	v := tinyVariant{name: "tiny-" + name, kernel: cloud}
	if agent {
		v.name += "-agent"
		v.packages = agentPackages
	}
	host := name
	if flavour == Alpine {
		host = "localhost"
	}
	for path, text := range map[string]string{
		"etc/flavour":    "FLAVOUR=" + name + "\n",
		"etc/hostname":   host + "\n",
		"etc/os-release": "ID=" + name + "\nNAME=" + name + "\nVERSION_ID=1\nPRETTY_NAME=" + name + "\n",
		"etc/passwd":     "root:x:0:0:root:/root:/bin/sh\n",
	} {
		v.files = append(v.files, fileEntry(path, []byte(text)))
	}
	err := walkFiles(loginFiles, "login", func(name string, data []byte) error {
		v.files = append(v.files, fileEntry(name, data))
		return nil
	})
	if err != nil {
		return "", err
	}
	slices.SortFunc(v.files, func(a, b entry) int { return strings.Compare(a.name, b.name) }) // the key's order
	dir, err := tiny(ctx, o, v)
	if err != nil {
		return "", err
	}
	return filepath.Join(dir, "disk.qcow2"), nil
}

// Netcat is the guests' nc, a script for a busybox.
func Netcat() ([]byte, error) { return loginFiles.ReadFile("login/bin/nc") }
