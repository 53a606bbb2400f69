package netsetup

import (
	"net"
	"net/netip"
	"os"
	"sync/atomic"
	"testing"
	"unsafe"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// testGuest is what a QEMU guest is to the network: a process that has the tap open and
// passes frames, with a network stack, a MAC address and a DHCP client.
type testGuest struct {
	ns   string // the guest's network stack
	plan Plan
	card *os.File
	asks []byte // further options of DHCP
	tap  atomic.Pointer[os.File]

	// small says that its DHCP client takes packets of 576 bytes, the least.
	small bool
}

// card is the guest's network card in its namespace.
const card = "eth0"

// start starts a guest with one card.
func (n *node) start(t *testing.T, id string, pod Pod) *testGuest {
	t.Helper()
	return n.startCards(t, id, pod)[0]
}

// startCards takes the steps of a VM's start in their order: see doc.go. Each card of the
// guest has a separate network stack.
func (n *node) startCards(t *testing.T, id string, pod Pod) []*testGuest {
	t.Helper()
	plan, err := n.setup.Plan(t.Context(), id, pod)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { n.undo(t, plan) })
	if err := n.setup.Apply(t.Context(), plan); err != nil {
		t.Fatal(err)
	}
	if _, err := n.setup.Serve(t.Context(), plan); err != nil {
		t.Fatal(err)
	}
	cards := powerOn(t, plan)
	if err := n.setup.Connect(t.Context(), plan); err != nil {
		t.Fatal(err)
	}
	return cards
}

// powerOn opens the taps by name in the node's namespace, as libvirt does, and joins each
// with a card in a new namespace.
func powerOn(t *testing.T, plan Plan) []*testGuest {
	t.Helper()
	var cards []*testGuest
	for _, n := range plan.NICs {
		one := plan
		one.NICs = []NIC{n}
		cards = append(cards, powerOnCard(t, one))
	}
	return cards
}

func powerOnCard(t *testing.T, plan Plan) *testGuest {
	t.Helper()
	m := &testGuest{ns: newNamespace(t), plan: plan}
	var host *os.File
	if plan.NICs[0].plugged() {
		host = openPlugged(t, plan)
	} else {
		host = openTap(t, plan.NICs[0].Tap)
	}
	inPod(t, m.ns, func(h *netlink.Handle) error {
		m.card = openTap(t, card)
		link, err := h.LinkByName(card)
		if err != nil {
			return err
		}
		if err := h.LinkSetHardwareAddr(link, net.HardwareAddr(plan.NICs[0].GuestMAC)); err != nil {
			return err
		}
		return h.LinkSetUp(link)
	})
	m.plugInto(host)
	go pass(m.tap.Load, m.card)
	return m
}

// plugInto connects the guest's card to a tap.
func (m *testGuest) plugInto(tap *os.File) {
	m.tap.Store(tap)
	go pass(func() *os.File { return m.card }, tap)
}

// pass moves frames with their virtio header, until one of the ends is closed.
func pass(to func() *os.File, from *os.File) {
	frame := make([]byte, 65550)
	for {
		n, err := from.Read(frame)
		if err != nil {
			return
		}
		_, _ = to().Write(frame[:n]) // a card that is down loses frames
	}
}

// openTap opens a tap in the thread's own namespace with the offloads that guests take.
func openTap(t *testing.T, name string) *os.File {
	t.Helper()
	fd, err := unix.Open("/dev/net/tun", unix.O_RDWR|unix.O_CLOEXEC|unix.O_NONBLOCK, 0)
	if err != nil {
		t.Fatal("open /dev/net/tun:", err)
	}
	request, err := unix.NewIfreq(name)
	if err != nil {
		t.Fatal(err)
	}
	request.SetUint16(unix.IFF_TAP | unix.IFF_NO_PI | unix.IFF_VNET_HDR)
	if err := unix.IoctlIfreq(fd, unix.TUNSETIFF, request); err != nil {
		t.Fatalf("open tap %s: %v", name, err)
	}
	if err := unix.IoctlSetInt(fd, unix.TUNSETOFFLOAD, unix.TUN_F_CSUM); err != nil {
		t.Fatalf("set offloads of tap %s: %v", name, err)
	}
	file := os.NewFile(uintptr(fd), name)
	t.Cleanup(func() { file.Close() })
	return file
}

// configure does what a guest does with its lease.
func (m *testGuest) configure(t *testing.T, l lease) {
	t.Helper()
	inPod(t, m.ns, func(h *netlink.Handle) error {
		link, err := h.LinkByName(card)
		if err != nil {
			return err
		}
		if err := h.LinkSetMTU(link, l.mtu); err != nil {
			return err
		}
		if err := h.AddrAdd(link, &netlink.Addr{IPNet: toIPNet(l.address)}); err != nil {
			return err
		}
		routes := l.routes
		if len(routes) == 0 && l.router.IsValid() {
			routes = []Route{{netip.MustParsePrefix("0.0.0.0/0"), l.router}}
		}
		for _, r := range routes {
			route := &netlink.Route{LinkIndex: link.Attrs().Index, Dst: toIPNet(r.Destination)}
			if r.Gateway.IsValid() {
				route.Gw = r.Gateway.AsSlice()
			} else {
				route.Scope = netlink.SCOPE_LINK
			}
			if err := h.RouteAdd(route); err != nil {
				return err
			}
		}
		return nil
	})
}

// txChecksum asks the kernel for the setting that disableTxChecksum makes.
func txChecksum(t *testing.T, ns, link string) uint32 {
	t.Helper()
	value := struct{ cmd, data uint32 }{cmd: unix.ETHTOOL_GTXCSUM, data: 7}
	inPod(t, ns, func(*netlink.Handle) error {
		fd, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM, 0)
		if err != nil {
			return err
		}
		defer unix.Close(fd)
		request := struct {
			name [unix.IFNAMSIZ]byte
			data unsafe.Pointer
			_    [16]byte
		}{data: unsafe.Pointer(&value)}
		copy(request.name[:], link)
		_, _, errno := unix.Syscall(unix.SYS_IOCTL, uintptr(fd), unix.SIOCETHTOOL,
			uintptr(unsafe.Pointer(&request)))
		if errno != 0 {
			return errno
		}
		return nil
	})
	return value.data
}
