package doctor

import (
	"errors"
	"net"
	"net/netip"
	"syscall"
	"testing"
)

// TestCanListen: a program that listens on all addresses takes the portal's port, too.
func TestCanListen(t *testing.T) {
	l, err := net.Listen("tcp4", "0.0.0.0:0")
	if err != nil {
		t.Fatal(err)
	}
	port := l.Addr().(*net.TCPAddr).AddrPort().Port()
	portal := netip.AddrPortFrom(netip.MustParseAddr("127.0.0.1"), port)
	if err := canListen(t.Context(), portal); !errors.Is(err, syscall.EADDRINUSE) {
		t.Errorf("a taken port: %v", err)
	}
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	if err := canListen(t.Context(), portal); err != nil {
		t.Errorf("a free port: %v", err)
	}
}
