package nodesetup

import (
	"os"
	"strconv"
	"strings"

	"github.com/nodevirt/nodevirt/cmd/nodevirt/internal/nodesetup/layout"
	"github.com/nodevirt/nodevirt/deploy"
	"github.com/nodevirt/nodevirt/shim/config"
)

// configPath is the shim's config file, as its unit passes it.
const configPath = "etc/nodevirt/nodevirt-shim.toml"

// shimConfig returns the shim's config file for a layout, and its fields. It sets containerd's socket
// and the kubelet's kubeconfig where the file has the defaults, and leaves other values to the
// administrator.
func shimConfig(root *os.Root, l layout.Layout) (edit, config.Config, error) {
	text, err := read(root, configPath)
	if err != nil {
		return edit{}, config.Config{}, err
	}
	if text == "" {
		text = deploy.ShimConfig
	}
	c, err := config.Parse("/"+configPath, []byte(text)) // as the shim reads it
	if err != nil {
		return edit{}, c, err
	}
	if c.Containerd.Address == config.Default().Containerd.Address && c.Containerd.Address != l.Containerd {
		c.Containerd.Address = l.Containerd
		text = set(text, "containerd", "address", l.Containerd)
	}
	if c.Kubernetes.Kubeconfig == "" {
		c.Kubernetes.Kubeconfig = l.Kubeconfig
		text = set(text, "kubernetes", "kubeconfig", l.Kubeconfig)
	}
	return edit{configPath, text, "containerd's socket and the kubelet's kubeconfig"}, c, nil
}

// set returns TOML text with a value of a table. It keeps comments.
func set(text, table, key, value string) string {
	line := key + " = " + strconv.Quote(value) + "\n"
	lines := strings.SplitAfter(text, "\n")
	in, heading := false, -1
	for i, l := range lines {
		l = strings.TrimSpace(l)
		if strings.HasPrefix(l, "[") {
			in = l == "["+table+"]"
			if in {
				heading = i
			}
			continue
		}
		if name, _, ok := strings.Cut(l, "="); ok && in && strings.TrimSpace(name) == key {
			lines[i] = line
			return strings.Join(lines, "")
		}
	}
	if heading >= 0 {
		lines[heading] = "[" + table + "]\n" + line
		return strings.Join(lines, "")
	}
	return strings.TrimRight(text, "\n") + "\n\n[" + table + "]\n" + line
}
