package node

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/nodevirt/nodevirt/test/guest"
	"github.com/nodevirt/nodevirt/test/guest/cache"
	"github.com/nodevirt/nodevirt/test/node/supervisor"
	"github.com/nodevirt/nodevirt/test/slowlink"
)

// Options say what node to start. Only Dir is needed.
type Options struct {
	Dir        string               // the state folder; short, for the sockets in it
	Bin        string               // where the built programs are; default: bin/ of the checkout
	Cache      string               // of what takes long to make; default: guest.DefaultCache
	Name       string               // cgroup; default: from Dir
	Hostname   string               // default: Name
	Subnet     netip.Prefix         // of the pods; default 10.244.1.0/24
	Subnet6    netip.Prefix         // of the pods, too; default: they have no IPv6
	CNI        func(map[string]any) // changes the pods' network before it is written
	Components []string             // default: all; registry and containerd go with each but the registry
	Registry   string               // host and port of another node's; default: a new one
	Lazy       Lazy                 // whether images are fetched as they are read; default: whole, before
	Link       slowlink.Link        // between the registry and the node; default: loopback
	Binds      []supervisor.Bind    // the node's further folders and files
	Expose     string               // a TCP address that a port of the machine's loopback leads to; see Exposed
	ShimConfig func(map[string]any) // changes the shim's configuration before it is written
	Traces     string               // where a collector receives containerd's traces, HOST:PORT; default: none
	Bound      bool                 // the node ends with this process, however that ends
	Log        io.Writer            // a line for each step of a start; default: none
}

// Lazy is how much of an image a node has before a VM starts.
type Lazy int

// The node fetches whole images, or lazy ones as they are read: with the rest in the background, or
// without.
const (
	Whole Lazy = iota
	InBackground
	OnDemand
)

// The longest path of a Unix socket; see unix(7). The longest one that is used in a node's run
// folder is of about this length.
const (
	maxSocket = 107
	longest   = "/run/containerd/containerd.sock.ttrpc"
)

func (o Options) complete() (Options, error) {
	if o.Dir == "" {
		return o, errors.New("node: no state folder given")
	}
	dir, err := filepath.Abs(o.Dir)
	if err != nil {
		return o, fmt.Errorf("node's folder: %w", err)
	}
	o.Dir = dir
	if excess := len(dir) + len(longest) - maxSocket; excess > 0 {
		return o, fmt.Errorf("node's folder %s: the path is %d bytes too long for sockets in it", dir, excess)
	}
	if o.Bin == "" {
		if o.Bin, err = CheckoutBin(); err != nil {
			return o, err
		}
	}
	if o.Cache == "" {
		o.Cache = guest.DefaultCache()
	}
	if o.Name == "" {
		o.Name = nameOf(dir)
	}
	if o.Hostname == "" {
		o.Hostname = o.Name
	}
	if !o.Subnet.IsValid() {
		o.Subnet = netip.MustParsePrefix("10.244.1.0/24")
	}
	if o.Components == nil {
		o.Components = []string{Registry, Containerd, Libvirtd, Tgtd, Shim}
	}
	if o.Log == nil {
		o.Log = io.Discard
	}
	return o, nil
}

// CheckoutBin is bin/ beside the go.mod above the working directory, where tests run.
func CheckoutBin() (string, error) {
	dir, err := os.Getwd()
	if err != nil {
		return "", fmt.Errorf("find the built programs: %w", err)
	}
	for d := dir; ; d = filepath.Dir(d) {
		if exists(filepath.Join(d, "go.mod")) {
			return filepath.Join(d, "bin"), nil
		}
		if d == filepath.Dir(d) {
			return "", fmt.Errorf("find the built programs: no go.mod above %s", dir)
		}
	}
}

// nameOf makes a node's name that no node in another folder has.
func nameOf(dir string) string {
	if base := filepath.Base(dir); strings.HasPrefix(base, "nodevirt-") {
		return base
	}
	sum := sha256.Sum256([]byte(dir))
	return "nodevirt-" + hex.EncodeToString(sum[:4])
}

func (o Options) has(component string) bool { return slices.Contains(o.Components, component) }

func (o Options) path(elem ...string) string {
	return filepath.Join(append([]string{o.Dir}, elem...)...)
}

func (o Options) run(elem ...string) string { return o.path(append([]string{"run"}, elem...)...) }
func (o Options) etc(elem ...string) string { return o.path(append([]string{"etc"}, elem...)...) }
func (o Options) log(name string) string    { return o.path("log", name+".log") }
func (o Options) supervisorSocket() string  { return o.run(supervisor.Socket) }

// lock keeps other processes from starting or stopping the same node meanwhile.
func (o Options) lock(ctx context.Context) (func(), error) {
	if err := os.MkdirAll(o.Dir, 0o711); err != nil {
		return nil, fmt.Errorf("make node's folder: %w", err)
	}
	unlock, err := cache.Lock(ctx, o.path("lock"))
	if err != nil {
		return nil, fmt.Errorf("wait for another start or stop of this node: %w", err)
	}
	return unlock, nil
}
