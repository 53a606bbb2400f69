//go:build cdi

package cdi

import (
	"context"
	"os"
	"testing"

	"github.com/nodevirt/nodevirt/test/cluster"
	"github.com/nodevirt/nodevirt/test/guest"
	"github.com/nodevirt/nodevirt/test/images"
)

// suite is what the tests share. It is set before the first test runs.
var suite struct {
	*cluster.Cluster
	disk    string // the path of guest.Tiny
	image   string // its registry disk, as pods reach it
	busybox string
	web     *source
}

// asker is a pod that asks guests.
const asker = "asker"

func TestMain(m *testing.M) {
	os.Exit(cluster.Main(m, cluster.Options{Nodes: 1, Storage: true}, prepare))
}

func prepare(ctx context.Context, c *cluster.Cluster) (err error) {
	suite.Cluster = c
	if suite.busybox, err = c.Control().PushBusybox(ctx); err != nil {
		return err
	}
	if suite.disk, err = guest.Tiny(ctx, c.Control().GuestOptions()); err != nil {
		return err
	}
	img, err := images.RegistryDisk(suite.disk, images.DiskOptions{AsFolder: true}) // CDI reads no other
	if err != nil {
		return err
	}
	if _, err := c.Push(ctx, "tiny:1", img); err != nil {
		return err
	}
	suite.image = c.RegistryAddress() + "/tiny:1"
	if suite.web, err = serve(ctx, suite.disk); err != nil {
		return err
	}
	if err := c.Deploy(ctx); err != nil {
		return err
	}
	if err := c.StartCDI(ctx); err != nil {
		return err
	}
	// The cluster has snapshots, by which CDI would clone.
	if err := c.WaitFor(ctx, "storageprofile/local", "jsonpath={.status.storageClass}=local"); err != nil {
		return err
	}
	if _, err := c.Kubectl(ctx, "patch", "storageprofile", "local", "--type=merge", "--patch", `{"spec":{"cloneStrategy":"copy"}}`); err != nil {
		return err
	}
	if err := apply(ctx, pod(asker, nil, "sleep", "1000000")); err != nil {
		return err
	}
	return c.WaitFor(ctx, "pod/"+asker, "condition=Ready")
}
