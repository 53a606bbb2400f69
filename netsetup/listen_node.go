package netsetup

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
)

// The TCP ports of a node on which it waits for guests that have their pod's address.
const (
	firstNodePort = 49152
	lastNodePort  = 49167
)

// ErrNodeAddress means that an address is not one at which nodes receive guests.
var ErrNodeAddress = errors.New("not an address at which nodes receive guests")

// ListenNode listens on an address of this node, on the first free port of the range for guests.
func ListenNode(ctx context.Context, address netip.Addr) (net.Listener, error) {
	if err := checkNodeAddress(address); err != nil {
		return nil, err
	}
	var last error
	for port := uint16(firstNodePort); port <= lastNodePort; port++ {
		l, err := (&net.ListenConfig{}).Listen(ctx, "tcp", netip.AddrPortFrom(address, port).String())
		if err == nil {
			return l, nil
		}
		last = err
	}
	return nil, fmt.Errorf("listen on the node's address %s, ports %d to %d: %w", address, firstNodePort, lastNodePort, last)
}

// DialNode connects to an address at which another node waits for a guest. The address comes from
// an order: it must not lead to services of this node's loopback, or of the network.
func DialNode(ctx context.Context, to netip.AddrPort) (net.Conn, error) {
	if err := checkNodeAddress(to.Addr()); err != nil {
		return nil, err
	}
	if to.Port() < firstNodePort || to.Port() > lastNodePort {
		return nil, fmt.Errorf("%w: port %d is not from %d to %d", ErrNodeAddress, to.Port(), firstNodePort, lastNodePort)
	}
	ctx, cancel := context.WithTimeoutCause(ctx, dialTime, errors.New("no answer"))
	defer cancel()
	conn, err := (&net.Dialer{}).DialContext(ctx, "tcp", to.String())
	if err != nil {
		return nil, fmt.Errorf("%w: nodes must reach each other's TCP ports %d to %d", err, firstNodePort, lastNodePort)
	}
	return conn, nil
}

// checkNodeAddress refuses loopback, link-local and multicast addresses.
func checkNodeAddress(a netip.Addr) error {
	if !a.IsGlobalUnicast() || a.Zone() != "" || a.Is4In6() {
		return fmt.Errorf("%w: %q", ErrNodeAddress, a)
	}
	return nil
}
