package netsetup

import (
	"io"
	"net"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/vishvananda/netlink"
)

const (
	idA = "a1b2c3d4e5f60718293a4b5c6d7e8f90a1b2c3d4e5f60718293a4b5c6d7e8f90"
	idB = "b0b2c3d4e5f60718293a4b5c6d7e8f90a1b2c3d4e5f60718293a4b5c6d7e8f90"
)

func addrs(list ...string) (all []netip.Addr) {
	for _, s := range list {
		all = append(all, netip.MustParseAddr(s))
	}
	return all
}

var compareAddrs = cmp.Options{
	cmp.Comparer(func(a, b netip.Addr) bool { return a == b }),
	cmp.Comparer(func(a, b netip.Prefix) bool { return a == b }),
	cmp.AllowUnexported(lease{}),
}

func TestGuestLearnsThePodsNetwork(t *testing.T) {
	n := newNode(t)
	a := n.start(t, idA, Pod{
		Netns: n.addPod(t), Hostname: "db-0.db.default.svc",
		Nameservers: addrs("10.96.0.10", "fd00::10", "10.96.0.11"),
		Searches:    []string{"default.svc.cluster.local", "svc.cluster.local", "."},
	})
	b := n.start(t, idB, Pod{Netns: n.addPod(t)})

	want := lease{
		address: netip.MustParsePrefix("10.88.1.2/24"),
		router:  netip.MustParseAddr("10.88.1.1"),
		routes: []Route{
			{netip.MustParsePrefix("192.0.2.0/24"), netip.MustParseAddr("10.88.1.7")},
			{netip.MustParsePrefix("0.0.0.0/0"), netip.MustParseAddr("10.88.1.1")},
		},
		servers:  addrs("10.96.0.10", "10.96.0.11"),
		domain:   "default.svc.cluster.local",
		searches: []string{"default.svc.cluster.local", "svc.cluster.local"},
		hostname: "db-0",
		mtu:      1400,
		seconds:  1<<32 - 1,
	}
	for _, client := range []string{"firmware", "system"} {
		if diff := cmp.Diff(want, a.dhcp(t, client), compareAddrs); diff != "" {
			t.Errorf("lease of %s (-want +got):\n%s", client, diff)
		}
	}
	want = lease{
		address: netip.MustParsePrefix("10.88.1.3/24"), router: want.router,
		routes: want.routes, mtu: want.mtu, seconds: want.seconds,
	}
	if diff := cmp.Diff(want, b.dhcp(t, "system"), compareAddrs); diff != "" {
		t.Errorf("lease of a pod without DNS settings (-want +got):\n%s", diff)
	}
}

func TestGuestGetsTheOptionsOfItsAuthor(t *testing.T) {
	n := newNode(t)
	for _, binding := range []Binding{Bridge, Masquerade} {
		t.Run(string(binding), func(t *testing.T) {
			id := map[Binding]string{Bridge: idA, Masquerade: idB}[binding]
			m := n.start(t, id, Pod{Netns: n.addPod(t), Interfaces: []Interface{{Binding: binding, DHCP: someOptions()}}})
			m.asks = []byte{optionNTP, optionTFTPServer, optionBootFile, 224, 230, 254}
			got := map[byte]string{}
			for number, value := range m.acked(t, "system").options {
				if slices.Contains(m.asks, number) {
					got[number] = strings.TrimRight(string(value), "\x00")
				}
			}
			want := map[byte]string{
				optionNTP: "\xc0\x00\x02\x08\xc0\x00\x02\x09", optionTFTPServer: "192.0.2.7", optionBootFile: `boot\x64\wdsnbp.com`,
				224: "01:02", 230: "7", 254: `a,"b" #c`,
			}
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("options (-want +got):\n%s", diff)
			}
		})
	}
}

func TestGuestIsReachedAtThePodsAddress(t *testing.T) {
	n := newNode(t)
	podA, podB := n.addPod(t), n.addPod(t)
	a := n.start(t, idA, Pod{Netns: podA})
	b := n.start(t, idB, Pod{Netns: podB})
	for _, m := range []*testGuest{a, b} {
		m.configure(t, m.dhcp(t, "system"))
	}
	target := a.serve(t, "guest A")
	for from, ns := range map[string]string{
		"node": hostNamespace, "another pod": n.addPod(t), "another guest": b.ns,
	} {
		if got := ask(t, ns, target); got != "guest A" {
			t.Errorf("from %s the pod's address answers %q", from, got)
		}
	}
	if got := ask(t, a.ns, b.serve(t, "guest B")); got != "guest B" {
		t.Errorf("from guest A, guest B answers %q", got)
	}
	if got := txChecksum(t, podA, bridgeName(0)); got != 0 {
		t.Errorf("the bridge offloads checksums: %d", got)
	}
	inPod(t, podA, func(h *netlink.Handle) error {
		link, err := h.LinkByName("eth0")
		if err != nil {
			return err
		}
		port, err := h.LinkGetProtinfo(link)
		if port.Learning {
			t.Error("the bridge learns from the pod's interface")
		}
		return err
	})
}

func TestSidecarReachesTheGuest(t *testing.T) {
	n := newNode(t)
	pod := n.addPod(t)
	m := n.start(t, idA, Pod{Netns: pod})
	m.configure(t, m.dhcp(t, "system"))
	if got := ask(t, pod, m.serve(t, "guest")); got != "guest" {
		t.Errorf("from a sidecar the guest answers %q", got)
	}
}

// serve listens on the guest's address and answers each connection with text.
func (m *testGuest) serve(t *testing.T, text string) string {
	t.Helper()
	return serveIn(t, m.ns, netip.AddrPortFrom(m.plan.NICs[0].IPv4.Address.Addr(), 80).String(), text)
}

// serveIn is serve in any namespace.
func serveIn(t *testing.T, ns, address, text string) string {
	t.Helper()
	var l net.Listener
	inPod(t, ns, func(*netlink.Handle) (err error) {
		l, err = net.Listen("tcp", address)
		return err
	})
	t.Cleanup(func() { l.Close() })
	go func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			_, _ = io.WriteString(conn, text)
			conn.Close()
		}
	}()
	return l.Addr().String()
}

// ask connects from a namespace and returns what the other side says.
func ask(t *testing.T, ns, target string) string {
	t.Helper()
	conn, err := dial(t, ns, target)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	answer, err := io.ReadAll(conn)
	if err != nil {
		t.Fatal(err)
	}
	return string(answer)
}

func dial(t *testing.T, ns, target string) (conn net.Conn, err error) {
	t.Helper()
	inPod(t, ns, func(*netlink.Handle) error {
		conn, err = (&net.Dialer{Timeout: 2 * time.Minute}).DialContext(t.Context(), "tcp", target)
		return nil
	})
	return conn, err
}
