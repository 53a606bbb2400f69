package netsetup

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// The addresses of a guest, and one that does not answer.
var (
	dialledIPv4 = netip.MustParseAddr("10.9.0.2")
	dialledIPv6 = netip.MustParseAddr("fd00:9::2")
	silentIPv4  = netip.MustParseAddr("10.9.1.2")
)

// dialPod is a namespace where all that Dial could find is: a guest's addresses, loopback, and a
// wire that swallows what is sent on it.
func dialPod(t *testing.T) string {
	t.Helper()
	ns := newNamespace(t)
	inPod(t, ns, func(h *netlink.Handle) error {
		wire := &netlink.Veth{LinkAttrs: netlink.LinkAttrs{Name: "wire"}, PeerName: "nobody"}
		if err := errors.Join(h.LinkAdd(wire), h.LinkSetUp(wire)); err != nil {
			return err
		}
		far, err := h.LinkByName("nobody")
		if err != nil {
			return err
		}
		if err := h.LinkSetUp(far); err != nil {
			return err
		}
		for _, a := range []string{"10.9.0.2/32", "10.9.1.1/24", "fd00:9::2/128"} {
			addr := &netlink.Addr{IPNet: toIPNet(netip.MustParsePrefix(a)), Flags: unix.IFA_F_NODAD}
			if err := h.AddrAdd(wire, addr); err != nil {
				return fmt.Errorf("add %s: %w", a, err)
			}
		}
		if err := awaitLocal(t.Context(), h, dialledIPv6); err != nil {
			return err
		}
		return h.NeighSet(&netlink.Neigh{LinkIndex: wire.Attrs().Index, State: netlink.NUD_PERMANENT,
			IP: silentIPv4.AsSlice(), HardwareAddr: net.HardwareAddr{2, 0, 0, 0, 0, 1}})
	})
	return ns
}

// awaitLocal waits until the kernel takes an IPv6 address for its own: it does so some time after
// it was added.
func awaitLocal(ctx context.Context, h *netlink.Handle, a netip.Addr) error {
	for {
		routes, err := h.RouteGet(a.AsSlice())
		if err == nil && len(routes) > 0 && routes[0].Type == unix.RTN_LOCAL {
			return nil
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("%s has not become local: %w", a, ctx.Err())
		case <-time.After(time.Millisecond):
		}
	}
}

// answering listens in a namespace and answers each connection with its address.
func answering(t *testing.T, ns string, addresses ...string) {
	t.Helper()
	for _, address := range addresses {
		serveIn(t, ns, address, address)
	}
}

func TestDial(t *testing.T) {
	ns := dialPod(t)
	answering(t, ns, "10.9.0.2:80", "127.0.0.1:80", "[fd00:9::2]:81", "127.0.0.1:82", "[::1]:83")
	guest := []netip.Addr{dialledIPv4, dialledIPv6}
	for _, c := range []struct {
		guest []netip.Addr
		port  uint16
		want  string
	}{
		{guest, 80, "10.9.0.2:80"}, // the guest comes first
		{guest, 81, "[fd00:9::2]:81"},
		{guest, 82, "127.0.0.1:82"}, // of another container
		{guest, 83, "[::1]:83"},
		{nil, 80, "127.0.0.1:80"},
		{[]netip.Addr{silentIPv4}, 82, "127.0.0.1:82"}, // a guest with a firewall
		{[]netip.Addr{silentIPv4, dialledIPv4}, 80, "10.9.0.2:80"},
	} {
		conn, err := Dial(t.Context(), ns, c.guest, c.port)
		if err != nil {
			t.Errorf("%v, port %d: %v", c.guest, c.port, err)
			continue
		}
		answer, err := io.ReadAll(conn)
		if string(answer) != c.want || err != nil {
			t.Errorf("%v, port %d: %q answers, %v; want %q", c.guest, c.port, answer, err, c.want)
		}
		_ = conn.Close()
	}
	_, err := Dial(t.Context(), ns, []netip.Addr{dialledIPv4}, 99)
	const want = "connect to port 99 of the pod: dial tcp 10.9.0.2:99: connection refused; " +
		"dial tcp 127.0.0.1:99: connection refused; dial tcp [::1]:99: connection refused"
	if err == nil || err.Error() != want {
		t.Errorf("got  %v\nwant %s", err, want)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if conn, err := Dial(ctx, ns, []netip.Addr{silentIPv4}, 80); err == nil || !strings.Contains(err.Error(), "context canceled") {
		t.Errorf("for a caller that has gone: %v, %v", conn, err)
	}
	if _, err := Dial(t.Context(), t.TempDir(), guest, 80); !strings.Contains(fmt.Sprint(err), errGone.Error()) {
		t.Errorf("in a namespace that has gone: %v", err)
	}
}

// TestDialLeavesNoThreadInThePod: one would do what others ask of it in the wrong network.
func TestDialLeavesNoThreadInThePod(t *testing.T) {
	ns := dialPod(t)
	answering(t, ns, "10.9.0.2:80")
	var all sync.WaitGroup
	for i := range 200 {
		all.Go(func() {
			conn, err := Dial(t.Context(), ns, []netip.Addr{dialledIPv4}, 80+uint16(i%2))
			if (err != nil) != (i%2 == 1) {
				t.Errorf("port %d: %v", 80+i%2, err)
			}
			if conn != nil {
				_ = conn.Close()
			}
		})
	}
	all.Wait()
	own, err := os.Readlink("/proc/self/ns/net")
	if err != nil {
		t.Fatal(err)
	}
	threads, err := os.ReadDir("/proc/self/task")
	if err != nil || len(threads) == 0 {
		t.Fatal(err)
	}
	for _, thread := range threads {
		in, err := os.Readlink("/proc/self/task/" + thread.Name() + "/ns/net")
		if in != own && !errors.Is(err, os.ErrNotExist) {
			t.Errorf("thread %s is in %s, %v; want %s", thread.Name(), in, err, own)
		}
	}
}
