package node

import (
	"context"
	"fmt"
	"path/filepath"

	"github.com/nodevirt/nodevirt/deploy"
	"github.com/nodevirt/nodevirt/test/node/config"
)

// Where the registry is in the node, and the sandbox image in it.
const (
	registryAddress = "127.0.0.1:5000"
	pauseImage      = registryAddress + "/pause:dev"
)

// component is a daemon of the node. Its files, by their paths, are written before it starts.
type component struct {
	name   string
	before []string // a program that is run before, as by a unit's ExecStartPre
	args   []string
	files  map[string]string
	ready  func(context.Context, *Node) error // whether it serves now
}

// components lists what the node is to run, in the order in which it starts.
func (o Options) components(values config.Node) ([]component, error) {
	all := []component{o.registry()}
	for _, make := range []func(config.Node) (component, error){o.containerd, o.libvirtd, o.shim} {
		c, err := make(values)
		if err != nil {
			return nil, err
		}
		if o.has(c.name) || c.name == Containerd {
			all = append(all, c)
		}
	}
	return all, nil
}

func (o Options) registry() component {
	return component{
		name:  Registry,
		args:  []string{o.devnode(), "registry", o.path("registry"), registryAddress, "/run/registry.sock"},
		ready: func(ctx context.Context, n *Node) error { return n.pingRegistry(ctx) },
	}
}

func (o Options) containerd(v config.Node) (component, error) {
	main, err := config.Containerd(v)
	if err != nil {
		return component{}, err
	}
	cni, err := config.CNI(v, o.CNI)
	if err != nil {
		return component{}, err
	}
	return component{
		name: Containerd,
		args: []string{filepath.Join(o.Bin, "containerd"), "--config", o.etc("containerd.toml")},
		files: map[string]string{
			o.etc("containerd.toml"):                   main,
			o.etc("certs.d", "_default", "hosts.toml"): config.Mirror(v),
			o.etc("cni", "10-pods.conflist"):           cni,
		},
		ready: func(ctx context.Context, n *Node) error { return n.pingCRI(ctx, n.ContainerdSocket()) },
	}, nil
}

func (o Options) libvirtd(v config.Node) (component, error) {
	var before []string
	if o.has(Shim) {
		before = []string{filepath.Join(o.Bin, "nodevirt-shim"), "-before-libvirtd"} // as in deploy/systemd
	}
	return component{
		name: Libvirtd, before: before,
		args: []string{"/usr/sbin/libvirtd", "--config", "/etc/libvirt/libvirtd.conf",
			"--pid-file", "/run/libvirt/libvirtd.pid"},
		files: map[string]string{
			o.etc("libvirt", "libvirtd.conf"): config.Libvirtd(v),
			o.etc("libvirt", "qemu.conf"):     deploy.QEMUConf,
		},
		ready: func(ctx context.Context, n *Node) error { return n.pingLibvirt(ctx) },
	}, nil
}

func (o Options) shim(v config.Node) (component, error) {
	text, err := config.Shim(v, o.ShimConfig)
	if err != nil {
		return component{}, err
	}
	return component{
		name:  Shim,
		args:  []string{filepath.Join(o.Bin, "nodevirt-shim"), "-config", o.etc("nodevirt-shim.toml")},
		files: map[string]string{o.etc("nodevirt-shim.toml"): text},
		ready: func(ctx context.Context, n *Node) error { return n.pingCRI(ctx, n.ShimSocket()) },
	}, nil
}

func (o Options) devnode() string { return filepath.Join(o.Bin, "devnode") }

// values are what the configuration files depend on.
func (o Options) values() (config.Node, error) {
	id, err := o.hostUUID()
	if err != nil {
		return config.Node{}, fmt.Errorf("name the node for libvirt: %w", err)
	}
	return config.Node{
		Bin: o.Bin, State: o.Dir, Etc: o.etc(), Registry: registryAddress, Pause: pauseImage,
		Subnet: o.Subnet, Subnet6: o.Subnet6, HostUUID: id,
	}, nil
}
