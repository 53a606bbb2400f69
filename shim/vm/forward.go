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
// or where it has none that of another container. VNC's port is the display's,
// where the machine has one.
func (m *Manager) Forward(ctx context.Context, sandboxID string, port uint16, client io.ReadWriteCloser) error {
	c, ok := m.runningIn(sandboxID)
	if !ok {
		return errors.New("the pod's VM does not run any more: try again for its other containers")
	}
	r := c.record()
	if r.Spec.Display && port == displayPort {
		conn, err := m.dialDisplay(r)
		if err != nil {
			return fmt.Errorf("VM container %q: %w", r.Config.Value.GetMetadata().GetName(), err)
		}
		stream.Join(ctx, client, conn)
		return nil
	}
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
