package netsetup

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"

	"github.com/vishvananda/netlink"
)

// Listen listens on a TCP port of a pod's address, inside the pod's network namespace. The
// listener's address is the one on which other pods reach it.
func Listen(ctx context.Context, pod string, port uint16) (net.Listener, error) {
	if err := checkNetns(pod); err != nil {
		return nil, err
	}
	var l net.Listener
	err := withinLink(pod, func(h *netlink.Handle) error {
		address, err := podAddress(h)
		if err != nil {
			return err
		}
		l, err = (&net.ListenConfig{}).Listen(ctx, "tcp", netip.AddrPortFrom(address, port).String())
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("listen in pod %s: %w", pod, err)
	}
	return l, nil
}

// podAddress returns the first address that CNI gave the pod; IPv4 comes first.
func podAddress(h *netlink.Handle) (netip.Addr, error) {
	link, err := findLink(h, podInterface)
	if err == nil && link == nil {
		err = fmt.Errorf("no interface %s: %w", podInterface, ErrNoAddress)
	}
	if err != nil {
		return netip.Addr{}, err
	}
	for _, family := range []int{netlink.FAMILY_V4, netlink.FAMILY_V6} {
		all, err := h.AddrList(link, family)
		if err != nil {
			return netip.Addr{}, fmt.Errorf("list addresses of %s: %w", podInterface, err)
		}
		for _, a := range all {
			if address, ok := netip.AddrFromSlice(a.IP); ok && address.Unmap().IsGlobalUnicast() {
				return address.Unmap(), nil
			}
		}
	}
	return netip.Addr{}, ErrNoAddress
}

// DialFrom connects to a TCP address from inside a pod's network namespace.
func DialFrom(ctx context.Context, pod string, to netip.AddrPort) (net.Conn, error) {
	if err := checkNetns(pod); err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeoutCause(ctx, dialTime, errors.New("no answer"))
	defer cancel()
	a := dialOne(ctx, pod, to)
	if a.err != nil {
		return nil, a.err
	}
	return a.conn, nil
}
