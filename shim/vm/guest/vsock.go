package guest

import (
	"context"
	"fmt"
	"strconv"

	"github.com/mdlayher/vsock"

	"github.com/nodevirt/nodevirt/shim/stream"
	"github.com/nodevirt/nodevirt/shim/vm/table"
	"github.com/nodevirt/nodevirt/shim/vm/vmerrors"
)

// controlVSOCK joins a client and a port of the VM's VSOCK. It writes the line [connected] first.
const controlVSOCK = "vsock"

// dialVSOCK connects to a port of a guest. The kernel gives up after two seconds.
func dialVSOCK(cid, port uint32) (stream.Conn, error) { return vsock.Dial(cid, port, nil) }

// vsock joins a client and a port of the guest until either has ended.
func (g *Guests) vsock(ctx context.Context, v *table.VM, s stream.Streams, number string) error {
	if s.In == nil || s.Out == nil || s.TTY {
		return execFailed(v, errNoStream)
	}
	port, err := parseVSOCKPort(number)
	if err != nil {
		return execFailed(v, err)
	}
	cid := v.Record().VSOCKCID()
	if cid == 0 {
		return execFailed(v, fmt.Errorf("%w: the VM has no VSOCK: set devices.autoattachVSOCK", vmerrors.ErrInvalid))
	}
	conn, err := g.vsocks(cid, port)
	if err != nil {
		return execFailed(v, fmt.Errorf("connect to port %d of the VM's VSOCK: %w", port, err))
	}
	return join(ctx, s, conn)
}

// vsockWithoutStream refuses a call that has no streams.
func vsockWithoutStream(port string) (control, error) {
	if _, err := parseVSOCKPort(port); err != nil {
		return nil, err
	}
	return func(context.Context, *table.VM) ([]byte, error) { return nil, errNoStream }, nil
}

// parseVSOCKPort returns a port. The highest number stands for any port.
func parseVSOCKPort(text string) (uint32, error) {
	port, err := strconv.ParseUint(text, 10, 32)
	if err != nil || uint32(port) == ^uint32(0) {
		return 0, fmt.Errorf("%w: %.20q is no port from 0 to 4294967294", vmerrors.ErrInvalid, text)
	}
	return uint32(port), nil
}
