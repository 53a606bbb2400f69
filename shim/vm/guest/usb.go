package guest

import (
	"context"
	"fmt"
	"net"
	"sync"

	"github.com/nodevirt/nodevirt/shim/stream"
	"github.com/nodevirt/nodevirt/shim/vm/table"
	"github.com/nodevirt/nodevirt/shim/vm/vmerrors"
)

// controlUSB joins a client's USB device, in the protocol usbredir, and a free slot of the VM. It writes the
// line [connected] first.
const controlUSB = "usb"

// usbSlots are the slots of a VM for USB devices of clients. QEMU serves one client a slot, and lets
// others wait.
type usbSlots struct {
	mu   sync.Mutex
	used []bool
}

// take returns a slot that is free, and gives it to the caller until release.
func (u *usbSlots) take() (slot int, release func(), err error) {
	u.mu.Lock()
	defer u.mu.Unlock()
	for n, used := range u.used {
		if used {
			continue
		}
		u.used[n] = true
		return n, func() {
			u.mu.Lock()
			defer u.mu.Unlock()
			u.used[n] = false
		}, nil
	}
	return 0, nil, fmt.Errorf("%w: each of the VM's %d slots for USB devices is in use", vmerrors.ErrState, len(u.used))
}

// usb joins a client and a slot until either has ended.
func (g *Guests) usb(ctx context.Context, v *table.VM, s stream.Streams) error {
	if s.In == nil || s.Out == nil || s.TTY {
		return execFailed(v, errNoStream)
	}
	conn, release, err := g.dialUSB(ctx, v)
	if err != nil {
		return execFailed(v, err)
	}
	defer release()
	return join(ctx, s, conn)
}

// dialUSB connects to a free slot. The caller closes the connection, and then releases the slot.
func (g *Guests) dialUSB(ctx context.Context, v *table.VM) (_ stream.Conn, release func(), err error) {
	r := v.Record()
	if !r.Spec.USBRedirection {
		return nil, nil, fmt.Errorf("%w: the VM takes no USB devices of clients: set devices.clientPassthrough", vmerrors.ErrInvalid)
	}
	slot, release, err := g.usbSlots.Of(v).take()
	if err != nil {
		return nil, nil, err
	}
	conn, err := new(net.Dialer).DialContext(ctx, "unix", g.layout.USBSockets(r.ID)[slot])
	if err != nil {
		release()
		return nil, nil, fmt.Errorf("connect to slot %d for USB devices: %w", slot, err)
	}
	return conn.(*net.UnixConn), release, nil
}

// usbWithoutStream refuses a call that has no streams.
func usbWithoutStream(context.Context, *table.VM) ([]byte, error) { return nil, errNoStream }
