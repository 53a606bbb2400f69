// Package config writes the configuration files of a development node's daemons. Each function
// makes a text from values and does nothing else; who puts it where is package node's matter.
package config

import (
	"encoding/json"
	"fmt"
	"net/netip"
	"strings"
	"text/template"

	"github.com/pelletier/go-toml/v2"

	"github.com/nodevirt/nodevirt/deploy"
)

// Node is what the texts depend on.
type Node struct {
	Bin      string       // folder of runc and the containerd shim
	State    string       // folder of what outlives the daemons
	Etc      string       // folder of these files
	Registry string       // host and port
	Pause    string       // the sandbox image
	Subnet   netip.Prefix // of the pods
	Subnet6  netip.Prefix // of the pods, where they have IPv6
	HostUUID string       // identifies this node's libvirt among others on the host
	Lazy     bool         // the stargz snapshotter has the images
	Fetch    bool         // it fetches the rest of them in the background
	Traces   bool         // containerd exports traces
}

// Snapshotter is the name of the snapshotter that has the images.
func (n Node) Snapshotter() string {
	if n.Lazy {
		return Stargz
	}
	return "overlayfs"
}

// Stargz is containerd's name of the stargz snapshotter, and StargzSocket is where it serves.
const (
	Stargz       = "stargz"
	StargzSocket = "/run/containerd-stargz-grpc.sock"
)

const containerd = `version = 3
root = '{{.State}}/containerd'
state = '/run/containerd'
# opt would install into /opt; the tracing plugins would look for a collector.
disabled_plugins = [
  'io.containerd.internal.v1.opt',
{{- if not .Traces}}
  'io.containerd.tracing.processor.v1.otlp',
  'io.containerd.internal.v1.tracing',
{{- end}}
]

[grpc]
  address = '/run/containerd/containerd.sock'

[plugins.'io.containerd.nri.v1.nri']
  disable = true

{{if .Lazy -}}
[proxy_plugins.stargz]
  type = 'snapshot'
  address = '/run/containerd-stargz-grpc.sock'
  [proxy_plugins.stargz.exports]
    root = '{{.State}}/stargz'

[plugins.'io.containerd.cri.v1.images']
  snapshotter = 'stargz'
  # The snapshotter learns from them which layer to fetch, and the digest of its table of contents.
  disable_snapshot_annotations = false

{{end -}}
[plugins.'io.containerd.cri.v1.images'.pinned_images]
  sandbox = '{{.Pause}}'

[plugins.'io.containerd.cri.v1.images'.registry]
  config_path = '{{.Etc}}/certs.d'

[plugins.'io.containerd.cri.v1.runtime']
  # Pods without privileges, such as those of exports and of CDI, read block devices.
  device_ownership_from_security_context = true
  # Root in a container may not have the capability to lower a process's score.
  restrict_oom_score_adj = true

[plugins.'io.containerd.cri.v1.runtime'.cni]
  bin_dirs = ['/usr/lib/cni', '{{.Bin}}']
  conf_dir = '{{.Etc}}/cni'

[plugins.'io.containerd.cri.v1.runtime'.containerd.runtimes.runc]
  runtime_type = 'io.containerd.runc.v2'

[plugins.'io.containerd.cri.v1.runtime'.containerd.runtimes.runc.options]
  BinaryName = '{{.Bin}}/runc'
  SystemdCgroup = false
`

// Containerd is containerd's configuration file.
func Containerd(n Node) (string, error) { return write("containerd", containerd, n) }

// write fills in the configuration of a daemon.
func write(daemon, text string, n Node) (string, error) {
	var b strings.Builder
	t, err := template.New("").Parse(text)
	if err != nil {
		return "", fmt.Errorf("parse the configuration of %s: %w", daemon, err)
	}
	if err := t.Execute(&b, n); err != nil {
		return "", fmt.Errorf("write the configuration of %s: %w", daemon, err)
	}
	return b.String(), nil
}

// Mirror is a hosts.toml which finds every image, whatever its registry's name, in the node's own.
func Mirror(n Node) string {
	return fmt.Sprintf("server = %[1]q\n\n[host.%[1]q]\n  capabilities = [\"pull\", \"resolve\"]\n",
		"http://"+n.Registry)
}

type object = map[string]any

const snapshotter = `# Each chunk is verified against its layer's table of contents, and that against the manifest.
disable_verification = false
allow_no_verification = false
no_background_fetch = {{not .Fetch}}
# A guest's reads of a disk have no order, so that bytes which are not asked for would only delay it.
noprefetch = true

[blob]
  # A guest's read, and so the end of its VM, waits for at most this long, with all retries.
  fetching_timeout_sec = 5
  # The background fetch ends for good at an error, so it should survive a registry's restart. It has
  # a limit of two minutes for each request.
  max_retries = 100
  max_wait_msec = 1000
  # The node's registry answers the first range of several.
  force_single_range_mode = true

[[resolver.host.'{{.Registry}}'.mirrors]]
  host = '{{.Registry}}'
  insecure = true
  request_timeout_sec = 5
`

// Snapshotter is the configuration of the stargz snapshotter.
func Snapshotter(n Node) (string, error) { return write("the stargz snapshotter", snapshotter, n) }

// CNI is the list of network plugins that containerd calls for a pod. The MTU is unlike Ethernet's,
// so that a guest which does not take it from the pod shows. If it is not nil, change may change
// the list before it is written.
func CNI(n Node, change func(map[string]any)) (string, error) {
	ranges := [][]object{{{"subnet": n.Subnet.String()}}}
	if n.Subnet6.IsValid() {
		ranges = append(ranges, []object{{"subnet": n.Subnet6.String()}})
	}
	list := object{
		"cniVersion": "1.0.0",
		"name":       "pods",
		"plugins": []object{
			{
				"type": "bridge", "bridge": "cni0", "mtu": 1400,
				"isDefaultGateway": true, "ipMasq": true, "hairpinMode": true,
				"ipam": object{
					"type":    "host-local",
					"ranges":  ranges,
					"dataDir": "/var/lib/cni/networks",
				},
			},
			{"type": "portmap", "capabilities": object{"portMappings": true}},
		},
	}
	if change != nil {
		change(list)
	}
	text, err := json.MarshalIndent(list, "", "  ")
	if err != nil {
		return "", fmt.Errorf("write the pods' network: %w", err)
	}
	return string(text) + "\n", nil
}

// Libvirtd is libvirtd's own configuration: what is this node's own, and what
// nodevirt asks of each. Its QEMU driver's is package deploy's.
func Libvirtd(n Node) string {
	return strings.Join([]string{
		"# Several nodes on a machine must not look like one to libvirt.",
		fmt.Sprintf("host_uuid = %q", n.HostUUID),
		`unix_sock_dir = "/run/libvirt"`,
		`unix_sock_rw_perms = "0700"`,
		`auth_unix_rw = "none"`,
		"max_clients = 500",
		"log_level = 3",
		`log_outputs = "3:stderr"`,
		"",
		deploy.LibvirtdConf,
	}, "\n")
}

// Shim is the shim's configuration. If it is not nil, change may change it before it is written.
func Shim(n Node, change func(map[string]any)) (string, error) {
	c := map[string]any{
		"listen": "/run/nodevirt/nodevirt.sock",
		"root":   n.State + "/nodevirt",
		"run":    "/run/nodevirt",
		"containerd": object{
			"address":     "/run/containerd/containerd.sock",
			"namespace":   "k8s.io",
			"snapshotter": n.Snapshotter(),
		},
		"libvirt": object{
			"uri": "qemu+unix:///system?socket=/run/libvirt/libvirt-sock",
			"run": "/run/libvirt",
		},
		"vm": object{"accelerator": "auto"},
	}
	if change != nil {
		change(c)
	}
	text, err := toml.Marshal(c)
	if err != nil {
		return "", fmt.Errorf("write the shim's configuration: %w", err)
	}
	return string(text), nil
}

// Crictl is crictl's configuration file. Its own limit of two seconds for a call is too short for
// the stop of a machine. The endpoint comes by the environment.
func Crictl() string { return "timeout: 120\n" }
