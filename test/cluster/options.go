package cluster

import (
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"slices"
	"time"

	"github.com/nodevirt/nodevirt/test/guest"
	"github.com/nodevirt/nodevirt/test/node"
)

// Options say what cluster to start. Only Dir is needed.
type Options struct {
	Dir        string               // the state folder; short, for the sockets in it
	Bin        string               // where the built programs are; default: bin/ of the checkout
	Cache      string               // of what takes long to make; default: guest.DefaultCache
	Nodes      int                  // how many; default 2
	DualStack  bool                 // nodes, pods and Services have IPv6, too
	Plain      bool                 // the nodes have no shim: containerd is the kubelets' runtime
	Storage    bool                 // it provides volumes; see the StorageClasses in manifests/storage.yaml
	Policies   bool                 // its network enforces NetworkPolicies
	Bound      bool                 // the cluster ends with this process, however that ends
	Kubelet    func(map[string]any) // changes the kubelets' configuration before it is written
	ShimConfig func(map[string]any) // changes the shims' configuration before it is written
	Controller []string             // the controller's flags
	Joining    []string             // further nodes, which the caller starts with credentials of the folder PKI
	Traces     bool                 // all parts export traces to a collector; see Cluster.Traces
	LostAfter  time.Duration        // how long a node is silent until it counts as lost; default Kubernetes' own
	Log        io.Writer            // a line for each step of a start; default: none

	// CNI changes the pods' network before it is written; kubeconfig has the node's credential.
	CNI func(list map[string]any, kubeconfig string)
}

// startLimit bounds waiting for what comes by itself: a node's registration, a rollout. On an idle
// machine it is a matter of seconds.
const startLimit = 5 * time.Minute

func (o Options) complete() (Options, error) {
	if o.Dir == "" {
		return o, errors.New("cluster: no state folder given")
	}
	dir, err := filepath.Abs(o.Dir)
	if err != nil {
		return o, fmt.Errorf("cluster's folder: %w", err)
	}
	o.Dir = dir
	if o.Bin == "" {
		if o.Bin, err = node.CheckoutBin(); err != nil {
			return o, err
		}
	}
	if o.Cache == "" {
		o.Cache = guest.DefaultCache()
	}
	if o.Nodes == 0 {
		o.Nodes = 2
	}
	if o.Log == nil {
		o.Log = io.Discard
	}
	o.Controller = append(slices.Clone(o.Controller), o.traceController()...)
	return o, nil
}

func (o Options) path(elem ...string) string {
	return filepath.Join(append([]string{o.Dir}, elem...)...)
}

// components are those of a node, and runtime is where its kubelet finds the container runtime.
func (o Options) components() (names []string, runtime string) {
	if o.Plain {
		return []string{node.Containerd}, "unix:///run/containerd/containerd.sock"
	}
	return []string{node.Containerd, node.Libvirtd, node.Tgtd, node.Shim}, "unix:///run/nodevirt/nodevirt.sock"
}

func (o Options) bin(name string) string { return filepath.Join(o.Bin, name) }
