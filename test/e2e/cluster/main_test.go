//go:build cluster

package cluster

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/nodevirt/nodevirt/test/ceph"
	"github.com/nodevirt/nodevirt/test/cluster"
	"github.com/nodevirt/nodevirt/test/cluster/clustertest"
	"github.com/nodevirt/nodevirt/test/guest"
	"github.com/nodevirt/nodevirt/test/node"
)

// suite is what the tests share. It is set before the first test runs.
var suite struct {
	*cluster.Cluster

	tiny    string // image with guest.Tiny as /disk
	agent   string // image with guest.TinyWithAgent as /disk
	busybox string

	// The API server was away. After a restart it refuses all requests until it has read the RBAC rules.
	// Without it the controller loses its lease and exits: its container restarts.
	disturbed bool
}

// logSize is the size from which on the kubelet rotates a log.
const logSize = 64 << 10

// sidecarShim is the name of the image with KubeVirt's sidecar-shim, which the controller has as its default.
const sidecarShim = "kubevirt/sidecar-shim:devel"

func TestMain(m *testing.M) {
	controller := []string{"-network-disks", "-hook-sidecar-image=registry:5000/" + sidecarShim}
	o := cluster.Options{Storage: storage, Policies: true, CNI: cni(), Controller: controller, ShimConfig: func(c map[string]any) {
		c["disks"] = map[string]any{"network": true, "ceph_networks": []string{ceph.Network}}
		c["vm"].(map[string]any)["hook_sidecars"] = true
	}, Kubelet: func(c map[string]any) {
		c["containerLogMaxSize"] = fmt.Sprint(logSize)
		c["containerLogMonitorInterval"] = "3s" // the shortest that it takes
	}}
	os.Exit(cluster.Main(&clean{M: m}, o, prepare))
}

// clean are tests of which nothing may be left on a node, if they pass. Err says what is left, and what else is wrong
// after them.
type clean struct {
	*testing.M

	err error
}

func (c *clean) Err() error { return c.err }

func (c *clean) Run() (code int) {
	ctx := context.Background()
	before := map[string]node.Census{} // by node
	for _, n := range suite.Nodes() {
		if before[n.Name()], c.err = n.Settled(ctx); c.err != nil {
			return 1
		}
	}
	code = c.M.Run()
	c.err = showStrangersOut(ctx)
	if suite.disturbed {
		return code
	}
	c.err = errors.Join(c.err, controllersRights())
	for _, n := range suite.Nodes() {
		if c.err != nil || code != 0 {
			return code
		}
		if err := n.SameAgain(ctx, before[n.Name()], 3*time.Minute); err != nil {
			c.err = fmt.Errorf("census of %s: %w", n.Name(), err)
		}
	}
	return code
}

// prepare pushes the images, and runs what most tests share.
func prepare(ctx context.Context, c *cluster.Cluster) (err error) {
	s := &suite
	s.Cluster = c
	if s.busybox, err = c.Control().PushBusybox(ctx); err != nil {
		return err
	}
	for _, disk := range []struct {
		name  string
		build func(context.Context, guest.Options) (string, error)
		ref   *string
	}{
		{"tiny:1", guest.Tiny, &s.tiny},
		{"tiny-agent:1", guest.TinyWithAgent, &s.agent},
		{"debian-disk:12", guest.Tiny, new(string)}, // the examples'
	} {
		if *disk.ref, err = clustertest.PushDisk(ctx, c, disk.name, disk.build); err != nil {
			return err
		}
	}
	if err := c.Deploy(ctx); err != nil {
		return err
	}
	if err := letStrangersIn(ctx); err != nil {
		return err
	}
	return shared(ctx)
}

// checkout is the folder of the go.mod.
func checkout() (string, error) {
	bin, err := node.CheckoutBin()
	return filepath.Dir(bin), err
}
