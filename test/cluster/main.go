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
	code, err := runMain(context.Background(), tests, o, prepare)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		code = max(code, 1)
	}
	return code
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
	code = tests.Run()
	for _, n := range c.nodes {
		if n == nil {
			continue // its power is off
		}
		if err := n.Sound(ctx); err != nil {
			fmt.Println(err)
			code = max(code, 1)
		}
	}
	if code != 0 {
		names := []string{"kube-apiserver", Kubelet, node.Containerd, node.Libvirtd, node.Shim}
		if o.Storage {
			names = append(names, CSI, "csi-provisioner")
		}
		for _, name := range names {
			fmt.Println(c.LogTail(name, 40))
		}
	}
	return code, nil
}
