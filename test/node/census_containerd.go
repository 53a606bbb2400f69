package node

import (
	"context"
	"errors"
	"fmt"

	containerd "github.com/containerd/containerd/v2/client"
	"github.com/containerd/containerd/v2/core/snapshots"
	"github.com/containerd/containerd/v2/pkg/namespaces"

	"github.com/nodevirt/nodevirt/test/node/config"
)

func (n *Node) leases(ctx context.Context) (all []string, err error) {
	err = n.withContainerd(ctx, func(ctx context.Context, c *containerd.Client) error {
		leases, err := c.LeasesService().List(ctx)
		for _, l := range leases {
			all = append(all, l.ID)
		}
		return err
	})
	return all, err
}

// snapshots are those that run or are viewed; what images were unpacked to stays with them.
func (n *Node) snapshots(ctx context.Context) (all []string, err error) {
	err = n.withContainerd(ctx, func(ctx context.Context, c *containerd.Client) error {
		return c.SnapshotService(n.snapshotter()).Walk(ctx, func(_ context.Context, s snapshots.Info) error {
			if s.Kind != snapshots.KindCommitted {
				all = append(all, s.Name)
			}
			return nil
		})
	})
	return all, err
}

// snapshotter has the node's images.
func (n *Node) snapshotter() string { return config.Node{Lazy: n.o.Lazy != Whole}.Snapshotter() }

// withContainerd calls do with a client and the namespace of the CRI's images and containers.
func (n *Node) withContainerd(ctx context.Context, do func(context.Context, *containerd.Client) error) (err error) {
	c, err := containerd.New(n.ContainerdSocket())
	if err != nil {
		return fmt.Errorf("reach containerd: %w", err)
	}
	defer func() { err = errors.Join(err, c.Close()) }()
	if err := do(namespaces.WithNamespace(ctx, "k8s.io"), c); err != nil {
		return fmt.Errorf("ask containerd: %w", err)
	}
	return nil
}
