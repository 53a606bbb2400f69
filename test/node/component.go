package node

import (
	"context"
	"fmt"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/nodevirt/nodevirt/deploy"
	"github.com/nodevirt/nodevirt/test/node/config"
)

// Where the registry is in the node, and the sandbox image in it.
const (
	registryAddress = "127.0.0.1:5000"
	registrySocket  = "/run/registry.sock"
	pauseImage      = registryAddress + "/pause:dev"
)

// tgtdSocket is the shim's default.
const (
	tgtdFolder = "nodevirt-tgtd" // below /run
	tgtdSocket = "/run/" + tgtdFolder + "/tgtd"
)

// Component is a daemon of the node. It is started in the node's folder cwd, with the node's programs
// in its PATH.
type Component struct {
	Name   string
	Before []string                           // a program that is run before, as by a unit's ExecStartPre
	Args   []string                           // the program's absolute path first
	Env    []string                           // beside what all components have
	Files  map[string]string                  // texts by their paths, written before it starts
	Ready  func(context.Context, *Node) error // whether it serves now
}

// components lists what the node is to run, in the order in which it starts.
func (o Options) components(values config.Node) ([]Component, error) {
	var all []Component
	if o.Registry == "" {
		all = append(all, o.registry())
	}
	if o.Lazy != Whole {
		c, err := o.stargz(values)
		if err != nil {
			return nil, err
		}
		all = append(all, c)
	}
	for _, make := range []func(config.Node) (Component, error){o.containerd, o.libvirtd, o.tgtd, o.shim} {
		c, err := make(values)
		if err != nil {
			return nil, err
		}
		if o.has(c.Name) || c.Name == Containerd && !o.bare() {
			all = append(all, c)
		}
	}
	return all, nil
}

func (o Options) registry() Component {
	address := registryAddress
	if o.bare() {
		address = ":5000" // it is for other nodes
	}
	return Component{
		Name: Registry,
		Args: []string{o.devnode(), "registry", "-rtt", o.Link.RoundTrip.String(), "-rate", strconv.FormatInt(o.Link.Rate, 10),
			o.path("registry"), address, registrySocket},
		Ready: func(ctx context.Context, n *Node) error { return n.pingRegistry(ctx) },
	}
}

// stargz is the snapshotter that fetches lazy images as they are read.
func (o Options) stargz(v config.Node) (Component, error) {
	text, err := config.Snapshotter(v)
	if err != nil {
		return Component{}, err
	}
	file := o.etc("stargz.toml")
	return Component{
		Name: Stargz,
		Args: []string{filepath.Join(o.Bin, "containerd-stargz-grpc"), "--config", file,
			"--root", o.path("stargz"), "--address", config.StargzSocket},
		Files: map[string]string{file: text},
		Ready: func(ctx context.Context, n *Node) error { return n.pingStargz(ctx) },
	}, nil
}

func (o Options) containerd(v config.Node) (Component, error) {
	main, err := config.Containerd(v)
	if err != nil {
		return Component{}, err
	}
	cni, err := config.CNI(v, o.CNI)
	if err != nil {
		return Component{}, err
	}
	var env []string
	if o.Traces != "" {
		env = []string{"OTEL_EXPORTER_OTLP_ENDPOINT=http://" + o.Traces, "OTEL_EXPORTER_OTLP_PROTOCOL=grpc"}
	}
	return Component{
		Name: Containerd, Env: env,
		Args: []string{filepath.Join(o.Bin, "containerd"), "--config", o.etc("containerd.toml")},
		Files: map[string]string{
			o.etc("containerd.toml"):                   main,
			o.etc("certs.d", "_default", "hosts.toml"): config.Mirror(v),
			o.etc("cni", "10-pods.conflist"):           cni,
		},
		Ready: func(ctx context.Context, n *Node) error { return n.pingCRI(ctx, n.ContainerdSocket()) },
	}, nil
}

func (o Options) libvirtd(v config.Node) (Component, error) {
	var before []string
	if o.has(Shim) {
		before = []string{filepath.Join(o.Bin, "nodevirt-shim"), "-before-libvirtd"} // as in deploy/systemd
	}
	return Component{
		Name: Libvirtd, Before: before,
		Args: []string{"/usr/sbin/libvirtd", "--config", "/etc/libvirt/libvirtd.conf",
			"--pid-file", "/run/libvirt/libvirtd.pid"},
		Files: map[string]string{
			o.etc("libvirt", "libvirtd.conf"): config.Libvirtd(v),
			o.etc("libvirt", "qemu.conf"):     deploy.QEMUConf,
		},
		Ready: func(ctx context.Context, n *Node) error { return n.pingLibvirt(ctx) },
	}, nil
}

// tgtd is as in deploy/systemd, with no other capabilities than it has there.
func (o Options) tgtd(config.Node) (Component, error) {
	return Component{
		Name: Tgtd,
		Args: append(confined(deploy.TgtdUnit),
			"/usr/sbin/tgtd", "-f", "-t", "2", "--iscsi", "portal=127.0.0.1:0,nop_interval=5,nop_count=6"),
		Env:   []string{"TGT_IPC_SOCKET=" + tgtdSocket},
		Ready: func(ctx context.Context, n *Node) error { return n.pingTgtd(ctx) },
	}, nil
}

// confined is the beginning of a command line that leaves the rest the capabilities of a unit.
func confined(unit string) []string {
	kept := []string{"-all"}
	for line := range strings.Lines(unit) {
		if names, ok := strings.CutPrefix(strings.TrimSpace(line), "CapabilityBoundingSet="); ok {
			for name := range strings.FieldsSeq(names) {
				kept = append(kept, "+"+strings.ToLower(strings.TrimPrefix(name, "CAP_")))
			}
		}
	}
	return []string{"/usr/bin/setpriv", "--bounding-set=" + strings.Join(kept, ","), "--inh-caps=-all", "--no-new-privs"}
}

func (o Options) shim(v config.Node) (Component, error) {
	text, err := config.Shim(v, o.ShimConfig)
	if err != nil {
		return Component{}, err
	}
	return Component{
		Name:  Shim,
		Args:  []string{filepath.Join(Programs, "nodevirt-shim"), "-config", o.etc("nodevirt-shim.toml")},
		Files: map[string]string{o.etc("nodevirt-shim.toml"): text},
		Ready: func(ctx context.Context, n *Node) error { return n.pingCRI(ctx, n.ShimSocket()) },
	}, nil
}

func (o Options) devnode() string { return filepath.Join(o.Bin, "devnode") }

// bare describes a node without any part of a runtime.
func (o Options) bare() bool { return slices.Equal(o.Components, []string{Registry}) }

// mirror is the registry that every image comes from, by host and port.
func (o Options) mirror() string {
	if o.Registry != "" {
		return o.Registry
	}
	return registryAddress
}

// values are what the configuration files depend on.
func (o Options) values() (config.Node, error) {
	id, err := o.hostUUID()
	if err != nil {
		return config.Node{}, fmt.Errorf("name the node for libvirt: %w", err)
	}
	return config.Node{
		Bin: o.Bin, State: o.Dir, Etc: o.etc(), Registry: o.mirror(), Pause: pauseImage,
		Subnet: o.Subnet, Subnet6: o.Subnet6, HostUUID: id,
		Lazy: o.Lazy != Whole, Fetch: o.Lazy == InBackground, Traces: o.Traces != "",
	}, nil
}
