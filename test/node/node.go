// Package node runs a development node: a registry, containerd, libvirtd and the shim, as they run
// together on a node of a cluster, but in separate namespaces (PID, mount, network, UTS and IPC)
// and with one folder for all that they keep. `make run` uses it, and every test that needs real
// parts.
//
// It owns the node's life, its daemons' configuration, and the look at what a node leaves behind.
// What the daemons then do is their matter. It changes nothing of the machine but for cgroups
// under a name of the node's own, which go with it, and empty folders as mount points below
// /var. The node has no link to the machine's network: to reach its pods, run a program in it.
package node

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"sync"

	"github.com/nodevirt/nodevirt/test/node/supervisor"
)

// The components of a node, in the order in which they start.
const (
	Registry   = "registry"
	Stargz     = "stargz" // with Options.Lazy
	Containerd = "containerd"
	Libvirtd   = "libvirtd"
	Tgtd       = "tgtd"
	Shim       = "shim"
)

// Node is a node that is up. It may be used by several goroutines.
type Node struct {
	o        Options
	client   *supervisor.Client
	lifeline *os.File // nil if the node outlives this process
	endpoint string   // of the CRI, as the node sees it

	mu    sync.Mutex
	added []Component
}

// ErrDown is returned if no node is up in a folder.
var ErrDown = errors.New("no node is up")

// Attach finds the node in a state folder which another process started; ErrDown if there is none.
func Attach(dir string) (*Node, error) {
	o, err := Options{Dir: dir}.complete()
	if err != nil {
		return nil, err
	}
	c, err := supervisor.Dial(o.supervisorSocket())
	if err != nil {
		return nil, fmt.Errorf("%w in %s: %w", ErrDown, dir, err)
	}
	n := &Node{o: o, client: c}
	return n, n.setEndpoint(false)
}

// Name is the node's host name and the name of its cgroup.
func (n *Node) Name() string { return n.o.Name }

// Dir is the node's state folder.
func (n *Node) Dir() string { return n.o.Dir }

// PID is the node's first process, as the machine sees it.
func (n *Node) PID() int { return n.client.PID() }

// CgroupParent is the cgroup that pods should name as their cgroup_parent, or a child of it.
func (n *Node) CgroupParent() string { return "/" + n.o.Name + "/pods" }

// RegistryAddress is the registry's host and port within the node. From outside, use it with
// RegistryTransport.
func (n *Node) RegistryAddress() string { return registryAddress }

// ContainerdSocket is containerd's socket, as the machine sees it.
func (n *Node) ContainerdSocket() string { return n.o.run("containerd", "containerd.sock") }

// ShimSocket is the shim's socket, as the machine sees it.
func (n *Node) ShimSocket() string { return n.o.run("nodevirt", "nodevirt.sock") }

// MetricsSocket is where the shim serves its metrics, as the machine sees it.
func (n *Node) MetricsSocket() string { return n.o.run("nodevirt", "metrics.sock") }

// LibvirtURI reaches the node's libvirtd from the machine.
func (n *Node) LibvirtURI() string {
	return "qemu+unix:///system?socket=" + n.o.run("libvirt", "libvirt-sock")
}

// Endpoint is where the CRI is served in the node: by the shim, if the node has one.
func (n *Node) Endpoint() string { return n.endpoint }

// Purge removes a stopped node's state folder.
func Purge(ctx context.Context, dir string) error {
	o, err := Options{Dir: dir}.complete()
	if err != nil {
		return err
	}
	unlock, err := o.lock(ctx)
	if err != nil {
		return err
	}
	defer unlock()
	if c, err := supervisor.Dial(o.supervisorSocket()); err == nil {
		return errors.Join(fmt.Errorf("remove %s: the node in it is up; stop it first", dir), c.Close())
	}
	if err := os.RemoveAll(o.Dir); err != nil {
		return fmt.Errorf("remove node's folder: %w", err)
	}
	return nil
}

func exists(path string) bool {
	_, err := os.Lstat(filepath.Clean(path))
	return !errors.Is(err, fs.ErrNotExist)
}
