package cluster

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/vishvananda/netlink"

	"github.com/nodevirt/nodevirt/test/node"
)

// PowerOff cuts the power of a node, like "node-2": its kubelet, shim, containers and guests are killed
// at once. The API server gets no notice. Until Boot the cluster has no node of that name, and callers
// may not use it.
func (c *Cluster) PowerOff(ctx context.Context, name string) error {
	i := slices.IndexFunc(c.nodes, func(n *node.Node) bool { return n != nil && n == c.Node(name) })
	if i < 0 {
		return fmt.Errorf("cut the power of %s: no such node is up", name)
	}
	held, err := c.o.held(name)
	if err != nil {
		return err
	}
	if err := c.nodes[i].PowerOff(ctx); err != nil {
		return err
	}
	for _, d := range held {
		if err := d.Detach(); err != nil {
			return fmt.Errorf("cut the power of %s: %w", name, err)
		}
	}
	c.nodes[i] = nil
	return unplug(c.control, i+1)
}

// Boot starts a node whose power was cut, on what its disks hold, and returns when its kubelet serves.
func (c *Cluster) Boot(ctx context.Context, name string) (err error) {
	for i, n := range c.nodes {
		if n == nil && nodeName(i+1) == name {
			c.nodes[i], err = c.o.worker(ctx, c.control, i+1)
			return err
		}
	}
	return fmt.Errorf("boot %s: no such node is off", name)
}

// unplug removes a node's link, which the kernel would do too, but some time later.
func unplug(control *node.Node, i int) error {
	return inNetwork(control, func(h *netlink.Handle) error {
		link, err := h.LinkByName(port(i))
		if _, gone := errors.AsType[netlink.LinkNotFoundError](err); gone {
			return nil
		}
		if err != nil {
			return fmt.Errorf("find the link of %s: %w", nodeName(i), err)
		}
		if err := h.LinkDel(link); err != nil {
			if _, still := h.LinkByName(port(i)); still == nil {
				return fmt.Errorf("unplug %s: %w", nodeName(i), err)
			}
		}
		return nil
	})
}
