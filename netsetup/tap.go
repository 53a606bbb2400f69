package netsetup

import (
	"context"
	"errors"
	"fmt"
	"syscall"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"
)

// Taps creates the taps alone, which QEMU needs for its start. Apply or Undo must follow.
func (s *Setup) Taps(ctx context.Context, p Plan) error {
	if err := p.check(); err != nil {
		return err
	}
	if err := s.keep(p); err != nil {
		return err
	}
	if err := each(addTap)(ctx, p); err != nil {
		return fmt.Errorf("set up tap of pod network %s: %w", p.Netns, err)
	}
	return nil
}

// addTap creates a persistent tap in the caller's own network namespace, where libvirt opens it by
// name. It stays down until Connect.
func addTap(p Plan, n NIC) error {
	moved := false
	err := withinLink(p.Netns, func(h *netlink.Handle) error {
		tap, err := findTap(h, n.Tap)
		moved = tap != nil
		return err
	})
	if err != nil || moved {
		return err
	}
	return withHandle(func(h *netlink.Handle) error {
		tap, err := findTap(h, n.Tap)
		if err != nil {
			return err
		}
		if tap == nil {
			if tap, err = newTap(h, n.Tap, n.Queues > 1); err != nil {
				return err
			}
		}
		// Kernels without IPv6 do not support this.
		err = h.LinkSetIP6AddrGenMode(tap, nl.IN6_ADDR_GEN_MODE_NONE)
		if err != nil && !errors.Is(err, unix.EAFNOSUPPORT) {
			return fmt.Errorf("switch IPv6 addresses of tap %s off: %w", n.Tap, err)
		}
		return setMTU(h, tap, n.MTU)
	})
}

func newTap(h *netlink.Handle, name string, queues bool) (netlink.Link, error) {
	attrs := netlink.NewLinkAttrs()
	attrs.Name = name
	flags := netlink.TUNTAP_NO_PI | netlink.TUNTAP_VNET_HDR
	if queues { // as many as QEMU opens
		flags |= netlink.TUNTAP_MULTI_QUEUE
	}
	// LinkAdd opens the tap, and closes it. A process that the shim starts meanwhile would hold a copy of
	// the descriptor until it runs its program, and QEMU would find the tap busy.
	syscall.ForkLock.RLock()
	err := h.LinkAdd(&netlink.Tuntap{LinkAttrs: attrs, Mode: netlink.TUNTAP_MODE_TAP, Flags: flags})
	syscall.ForkLock.RUnlock()
	if err != nil {
		return nil, fmt.Errorf("add tap %s: %w", name, err)
	}
	tap, err := h.LinkByName(name)
	if err != nil {
		return nil, fmt.Errorf("look up tap %s: %w", name, err)
	}
	return tap, nil
}

// Connect moves the taps, which QEMU has open by now, into the pod's namespace and makes them
// ports of their bridges. It may be repeated.
func (s *Setup) Connect(ctx context.Context, p Plan) error {
	if err := errors.Join(p.check(), ctx.Err()); err != nil {
		return err
	}
	for _, n := range p.NICs {
		if n.plugged() { // QEMU has its device
			if err := removeTap(p, n); err != nil {
				return err
			}
			continue
		}
		if err := connect(p, n); err != nil {
			return fmt.Errorf("connect tap %s to pod network %s: %w", n.Tap, p.Netns, err)
		}
		s.log.DebugContext(ctx, "guest connected to pod network", "netns", p.Netns, "tap", n.Tap)
	}
	return nil
}

func connect(p Plan, n NIC) error {
	if err := moveTap(p, n); err != nil {
		return err
	}
	return withinLink(p.Netns, func(h *netlink.Handle) error { return enslaveTap(h, p, n) })
}

func moveTap(p Plan, n NIC) error {
	ns, err := openNamespace(p.Netns)
	if err != nil {
		return err
	}
	defer ns.Close()
	return withHandle(func(h *netlink.Handle) error {
		tap, err := findTap(h, n.Tap)
		if err != nil || tap == nil { // it has moved; if not, enslaveTap returns an error
			return err
		}
		if err := h.LinkSetNsFd(tap, int(ns)); err != nil {
			return fmt.Errorf("move tap: %w", err)
		}
		return nil
	})
}

func enslaveTap(h *netlink.Handle, p Plan, n NIC) error {
	tap, err := findTap(h, n.Tap)
	if err != nil {
		return err
	}
	if tap == nil {
		return errors.New("no such tap: call Apply first")
	}
	bridge, err := p.ownBridge(h, n)
	if err != nil {
		return err
	}
	if bridge == nil {
		return fmt.Errorf("bridge %s is not this VM's", n.Bridge)
	}
	if err := disableIPv6(n.Tap, true); err != nil {
		return err
	}
	if err := setMTU(h, tap, n.MTU); err != nil {
		return err
	}
	if err := setMTU(h, bridge, n.MTU); err != nil { // a guest that comes by migration keeps the one that it had
		return err
	}
	if err := h.LinkSetMaster(tap, bridge); err != nil {
		return fmt.Errorf("make tap a port of %s: %w", n.Bridge, err)
	}
	if err := h.LinkSetUp(tap); err != nil {
		return fmt.Errorf("set tap up: %w", err)
	}
	return nil
}

// removeTap removes the tap from both namespaces, even while QEMU has it open. Its name
// contains the VM's id, so it needs no other mark of ownership.
func removeTap(p Plan, n NIC) error {
	remove := func(h *netlink.Handle) error {
		tap, err := findTap(h, n.Tap)
		if errors.Is(err, errNoTap) || err == nil && tap == nil {
			return nil
		}
		if err != nil {
			return err
		}
		if err := h.LinkDel(tap); err != nil && !errors.Is(err, unix.ENODEV) {
			return fmt.Errorf("remove tap %s: %w", n.Tap, err)
		}
		return nil
	}
	err := withinLink(p.Netns, remove)
	if errors.Is(err, errGone) {
		err = nil
	}
	return errors.Join(err, withHandle(remove))
}

// errNoTap means that a link with the tap's name is another kind of device, and not ours.
var errNoTap = errors.New("a link of that name exists already and is not a tap")

// findTap returns nil without an error if there is no such link.
func findTap(h *netlink.Handle, name string) (netlink.Link, error) {
	link, err := findLink(h, name)
	if err != nil || link == nil {
		return nil, err
	}
	if _, ok := link.(*netlink.Tuntap); !ok {
		return nil, fmt.Errorf("tap %s: %w", name, errNoTap)
	}
	return link, nil
}

func setMTU(h *netlink.Handle, link netlink.Link, mtu int) error {
	if err := h.LinkSetMTU(link, mtu); err != nil {
		return fmt.Errorf("set MTU of %s to %d: %w", link.Attrs().Name, mtu, err)
	}
	return nil
}

// withHandle runs fn with a netlink handle of the caller's own network namespace.
func withHandle(fn func(*netlink.Handle) error) error {
	h, err := netlink.NewHandle(unix.NETLINK_ROUTE)
	if err != nil {
		return fmt.Errorf("open netlink: %w", err)
	}
	defer h.Close()
	return fn(h)
}
