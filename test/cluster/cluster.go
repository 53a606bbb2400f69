package cluster

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"golang.org/x/sync/errgroup"

	"github.com/nodevirt/nodevirt/test/cluster/pki"
	"github.com/nodevirt/nodevirt/test/node"
)

// Cluster is a cluster that is up. It may be used by several goroutines.
type Cluster struct {
	o       Options
	control *node.Node
	nodes   []*node.Node
}

// ErrDown is returned if no cluster is up in a folder.
var ErrDown = errors.New("no cluster is up")

// Start starts a cluster, or what is missing of it, and returns when its nodes are Ready and names are
// resolved. What was started is left for a look at it when that fails, and for Stop; the cluster is
// returned with the error, as far as it came, unless nothing was started.
func Start(ctx context.Context, o Options) (*Cluster, error) {
	o, err := o.complete()
	if err != nil {
		return nil, err
	}
	if err := os.MkdirAll(o.Dir, 0o711); err != nil {
		return nil, fmt.Errorf("make cluster's folder: %w", err)
	}
	if err := o.keep(); err != nil {
		return nil, err
	}
	control, err := node.Start(ctx, o.controlNode())
	if err != nil {
		return nil, fmt.Errorf("start the control plane's node: %w", err)
	}
	c := &Cluster{o: o, control: control, nodes: make([]*node.Node, o.Nodes)}
	if err := o.makeBridge(control); err != nil {
		return c, err
	}
	if err := c.startAll(ctx); err != nil {
		return c, err
	}
	return c, c.settle(ctx)
}

func (o Options) controlNode() node.Options {
	return node.Options{
		Dir: o.path("control"), Bin: o.Bin, Cache: o.Cache, Hostname: "control", Bound: o.Bound, Log: o.Log,
		Components: []string{node.Registry},
		Expose:     apiAddress,
	}
}

// startAll starts the control plane and the nodes at once: each waits for those that it needs.
func (c *Cluster) startAll(ctx context.Context) error {
	group, ctx := errgroup.WithContext(ctx)
	group.Go(func() error {
		for _, component := range c.o.control() {
			if err := c.control.Add(ctx, component); err != nil {
				return err
			}
		}
		if !c.o.Storage {
			return nil
		}
		return c.startStorage(ctx)
	})
	for i := range c.nodes {
		group.Go(func() (err error) {
			if c.nodes[i], err = c.o.worker(ctx, c.control, i+1); err != nil {
				return fmt.Errorf("start %s: %w", nodeName(i+1), err)
			}
			return nil
		})
	}
	group.Go(func() error { return c.pushDNS(ctx) })
	return group.Wait()
}

// settle waits for what a cluster that is up does by itself, and gives it names.
func (c *Cluster) settle(ctx context.Context) error {
	kubeconfig, err := c.writeKubeconfig()
	if err != nil {
		return err
	}
	for i := range c.nodes {
		if err := c.WaitFor(ctx, "node/"+nodeName(i+1), "condition=Ready"); err != nil {
			return fmt.Errorf("%w\n%s", err, c.nodes[i].LogTail(Kubelet, 25))
		}
		if c.o.Storage {
			if err := c.awaitStorage(ctx, nodeName(i+1)); err != nil {
				return fmt.Errorf("%w\n%s", err, c.nodes[i].LogTail(CSI, 25))
			}
		}
		fmt.Fprintf(c.o.Log, "%s is Ready\n", nodeName(i+1))
	}
	if err := c.WaitFor(ctx, "serviceaccount/default", "jsonpath={.metadata.uid}"); err != nil {
		return err
	}
	if err := c.startDNS(ctx); err != nil {
		return fmt.Errorf("start the cluster's DNS: %w", err)
	}
	fmt.Fprintf(c.o.Log, "names are resolved; KUBECONFIG=%s\n", kubeconfig)
	return nil
}

// Attach finds the cluster in a state folder which another process started; ErrDown if there is none.
func Attach(dir string) (*Cluster, error) {
	o, err := Options{Dir: dir}.complete()
	if err != nil {
		return nil, err
	}
	c := &Cluster{o: o}
	if c.control, err = node.Attach(o.path("control")); err != nil {
		return nil, fmt.Errorf("%w in %s: %w", ErrDown, dir, err)
	}
	folders, err := filepath.Glob(o.path("node-*"))
	if err != nil {
		return nil, err
	}
	for i := range len(folders) {
		n, err := node.Attach(o.path(nodeName(i + 1)))
		if err != nil {
			return nil, fmt.Errorf("%s of the cluster in %s: %w", nodeName(i+1), dir, err)
		}
		c.nodes = append(c.nodes, n)
	}
	return c, nil
}

// Control is the node of the control plane: etcd, kube-apiserver, kube-controller-manager and
// kube-scheduler are its components. From its network nodes, pods and Services can be reached.
func (c *Cluster) Control() *node.Node { return c.control }

// ControlAddress is the IP address of the control plane's node. Pods reach what listens there.
func (c *Cluster) ControlAddress() string { return controlAddress }

// RegistryAddress is the host and port of the cluster's registry for pods, which speaks plain HTTP.
func (c *Cluster) RegistryAddress() string { return registryAddress }

// Nodes are those that run pods, as node-1 and so on. Kubelet and Proxy are components of theirs.
func (c *Cluster) Nodes() []*node.Node { return c.nodes }

// Node is the one of a name, like "node-2"; nil if there is none.
func (c *Cluster) Node(name string) *node.Node {
	for i, n := range c.nodes {
		if nodeName(i+1) == name {
			return n
		}
	}
	return nil
}

// AuditLog is the file in which the API server notes each request, as a line of JSON.
func (c *Cluster) AuditLog() string { return c.o.auditLog() }

// PKI is the folder of the cluster's certificates, with a kubeconfig for each client, such as node-1.kubeconfig.
func (c *Cluster) PKI() string { return c.o.path("pki") }

// Kubeconfig is an administrator's file for clients on the machine, in its own network.
func (c *Cluster) Kubeconfig() string { return c.o.path("kubeconfig") }

// writeKubeconfig writes it, with the port under which the API is reached.
func (c *Cluster) writeKubeconfig() (path string, err error) {
	address, err := c.control.Exposed()
	if err != nil {
		return "", err
	}
	var files [3][]byte
	for i, name := range []string{"ca.crt", "admin.crt", "admin.key"} {
		if files[i], err = os.ReadFile(c.o.path("pki", name)); err != nil {
			return "", fmt.Errorf("write kubeconfig: %w", err)
		}
	}
	text, err := pki.Kubeconfig("https://"+address.String(), files[0], pki.Pair{Cert: files[1], Key: files[2]})
	if err != nil {
		return "", err
	}
	return c.Kubeconfig(), os.WriteFile(c.Kubeconfig(), text, 0o600)
}

// Push uploads an image to the cluster's registry under a name with a tag, like "disk:1", and returns the
// reference that pods name it by.
func (c *Cluster) Push(ctx context.Context, name string, img v1.Image) (ref string, err error) {
	return c.control.Push(ctx, name, img)
}
