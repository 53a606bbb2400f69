package cluster

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"golang.org/x/sync/errgroup"

	"github.com/nodevirt/nodevirt/test/csi"
	"github.com/nodevirt/nodevirt/test/node"
)

// Remove stops the cluster in a state folder, or what is left of one, and removes the folder. There may be
// neither.
func Remove(ctx context.Context, dir string) error {
	o, err := Options{Dir: dir}.complete()
	if err != nil {
		return err
	}
	folders, err := filepath.Glob(o.path("node-*"))
	if err != nil {
		return err
	}
	c := &Cluster{o: o}
	for _, folder := range append([]string{o.path("control")}, folders...) {
		n, err := node.Attach(folder)
		if errors.Is(err, node.ErrDown) {
			continue
		}
		if err != nil {
			return err
		}
		c.nodes = append(c.nodes, n)
	}
	return c.Stop(ctx)
}

// Stop ends the cluster and removes all that it kept. Guests and containers are stopped as on a node that
// goes: without asking the API.
func (c *Cluster) Stop(ctx context.Context) error {
	var group errgroup.Group
	errs := make([]error, len(c.nodes)+1)
	for i, n := range append([]*node.Node{c.control}, c.nodes...) {
		if n == nil {
			continue // it was never started
		}
		group.Go(func() error {
			errs[i] = n.Stop(ctx)
			return nil
		})
	}
	_ = group.Wait() // each must be tried
	if err := errors.Join(append(errs, csi.Release(c.o.storage()))...); err != nil {
		return fmt.Errorf("stop the cluster in %s: %w", c.o.Dir, err)
	}
	if err := os.RemoveAll(c.o.Dir); err != nil {
		return fmt.Errorf("remove the cluster's folder: %w", err)
	}
	return nil
}
