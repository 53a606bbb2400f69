package vm

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/netip"

	"github.com/nodevirt/nodevirt/netsetup"
	"github.com/nodevirt/nodevirt/shim/stream"
)

// Forward joins a client and a TCP port of a pod whose machine runs: the guest's,
// or where it has none that of another container.
func (m *Manager) Forward(ctx context.Context, sandboxID string, port uint16, client io.ReadWriteCloser) error {
	c, ok := m.runningIn(sandboxID)
	if !ok {
		return errors.New("the pod's VM does not run any more: try again for its other containers")
	}
	r := c.record()
	p, err := m.pod(ctx, sandboxID)
	if err != nil {
		return err
	}
	var guest []netip.Addr
	if r.Network != nil {
		guest = r.Network.GuestAddresses()
	}
	conn, err := netsetup.Dial(ctx, p.netns, guest, port)
	if err != nil {
		return fmt.Errorf("VM container %q: %w", r.Config.Value.GetMetadata().GetName(), err)
	}
	stream.Join(ctx, client, conn)
	return nil
}
