package node

import (
	"context"
	"errors"
	"fmt"
)

// PowerOff ends all processes of the node at once, as of a machine whose power is cut: daemons,
// containers and guests. What a machine keeps on its disks is left, and Start boots it again. The
// Node is of no use any more.
func (n *Node) PowerOff(ctx context.Context) error {
	unlock, err := n.o.lock(ctx)
	if err != nil {
		return err
	}
	defer unlock()
	if err := n.end(ctx); err != nil {
		return fmt.Errorf("cut the power of node %s: %w", n.o.Name, err)
	}
	return errors.Join(n.removeDevices(), removeCgroups(ctx, n.o.Name))
}
