package cluster

import (
	"context"
	"errors"
	"fmt"
	"os"

	"github.com/nodevirt/nodevirt/test/node"
)

// Main is for a TestMain whose tests share one cluster; it is as node.Main.
func Main(tests interface{ Run() int }, o Options, prepare func(context.Context, *Cluster) error) int {
	return node.Ended(runMain(context.Background(), tests, o, prepare))
}

func runMain(ctx context.Context, tests interface{ Run() int }, o Options, prepare func(context.Context, *Cluster) error) (code int, err error) {
	if o.Dir, err = os.MkdirTemp("", "nodevirt-"); err != nil {
		return 1, err
	}
	if err := os.Chmod(o.Dir, 0o711); err != nil { // QEMU's uid looks into it
		return 1, err
	}
	o.Bound = true
	c, err := Start(ctx, o)
	defer func() {
		if c != nil {
			err = errors.Join(err, c.Stop(ctx))
		}
	}()
	if err != nil {
		return 1, err
	}
	if err := prepare(ctx, c); err != nil {
		return 1, err
	}
	return node.RunTests(tests, func() error { return c.sound(ctx) }, func() {
		names := []string{"kube-apiserver", Kubelet, node.Containerd, node.Libvirtd, node.Shim}
		if o.Storage {
			names = append(names, CSI, "csi-provisioner")
		}
		for _, name := range names {
			fmt.Println(c.LogTail(name, 40))
		}
	})
}

// sound is [node.Node.Sound] of all nodes that have power.
func (c *Cluster) sound(ctx context.Context) (err error) {
	for _, n := range c.nodes {
		if n != nil {
			err = errors.Join(err, n.Sound(ctx))
		}
	}
	return err
}
