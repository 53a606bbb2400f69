//go:build cluster

package nodes

import (
	"context"
	"os"
	"testing"
	"time"

	"github.com/nodevirt/nodevirt/test/cluster"
	"github.com/nodevirt/nodevirt/test/cluster/clustertest"
	"github.com/nodevirt/nodevirt/test/guest"
)

// The nodes: the VMs under test run on the second, their clients on the first.
const (
	steady = "node-1"
	harmed = "node-2"
)

// suite is what the tests share. It is set before the first test runs.
var suite struct {
	*cluster.Cluster
	tiny    string // image with guest.Tiny as /disk
	busybox string
	cgroups []string // of the nodes, which identify their processes
}

func TestMain(m *testing.M) {
	// Not shorter: on a busy machine a kubelet may be late.
	o := cluster.Options{Nodes: 2, LostAfter: 20 * time.Second, Storage: storage, Controller: []string{"-vm-state-shared"}}
	os.Exit(cluster.Main(m, o, prepare))
}

func prepare(ctx context.Context, c *cluster.Cluster) (err error) {
	suite.Cluster = c
	for _, n := range c.Nodes() {
		suite.cgroups = append(suite.cgroups, n.Name())
	}
	if suite.busybox, err = c.Control().PushBusybox(ctx); err != nil {
		return err
	}
	if suite.tiny, err = clustertest.PushDisk(ctx, c, "tiny:1", guest.Tiny); err != nil {
		return err
	}
	if err := c.Deploy(ctx); err != nil {
		return err
	}
	if err := apply(ctx, asker("asker", steady)); err != nil {
		return err
	}
	return c.WaitFor(ctx, "pod/asker", "condition=Ready")
}
