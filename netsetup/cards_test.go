package netsetup

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// addNetworks gives a pod the interfaces net1, by CNI's bridge, and net2, by macvlan, as Multus has
// them made, and net3, which has no address.
func addNetworks(t *testing.T, dir, id, ns string) {
	t.Helper()
	ipam := func(subnet string) map[string]any {
		return map[string]any{
			"type": "host-local", "dataDir": dir, "subnet": subnet,
		}
	}
	for name, conf := range map[string]map[string]any{
		"net1": {"type": "bridge", "bridge": "cni1", "mtu": 9000, "isGateway": true, "ipam": ipam("10.77.1.0/24")},
		"net2": {"type": "macvlan", "master": "lan0", "mode": "bridge", "ipam": ipam("10.77.2.0/24")},
		"net3": {"type": "bridge", "bridge": "cni3"},
	} {
		conf["cniVersion"], conf["name"] = "0.4.0", name
		runCNI(t, conf, "ADD", id, ns, name)
		t.Cleanup(func() { runCNI(t, conf, "DEL", id, ns, name) })
	}
}

func TestSeveralCards(t *testing.T) {
	n := newNode(t)
	lan := newNamespace(t) // a host on the network that the macvlans' parent is on
	run(t, hostNamespace, "ip", "link", "add", "lan0", "type", "veth", "peer", "name", "lan0", "netns", lan)
	run(t, hostNamespace, "ip", "link", "set", "lan0", "up")
	run(t, lan, "sh", "-c", "ip link set lan0 up; ip addr add 10.77.2.200/24 dev lan0")
	for _, link := range []string{"lan0", "cni1", "cni3"} {
		t.Cleanup(func() { removeLink(t, link) })
	}
	pod, other := n.addPod(t), n.addPod(t)
	dir := t.TempDir()
	addNetworks(t, dir, "pod", pod)
	addNetworks(t, dir, "other", other)
	before := state(t, pod)
	wanted := on(pod, "eth0", "net1", "net2", "net3")
	wanted.Interfaces[0].Binding = Masquerade
	wanted.Hostname = "router"
	cards := n.startCards(t, idA, wanted)
	for i, want := range []string{"10.0.2.2/24 1400", "10.77.1.2/24 9000", "10.77.2.2/24 1500"} {
		l := cards[i].dhcp(t, "system")
		if got := fmt.Sprint(l.address, l.mtu); got != want || l.hostname != "router" {
			t.Errorf("card %d: lease %s of %s, want %s", i, got, l.hostname, want)
		}
		cards[i].configure(t, l)
		cards[i].serve(t, fmt.Sprint("card ", i))
	}
	for i, from := range map[int][]string{0: {hostNamespace, other}, 1: {hostNamespace, other}, 2: {lan, other}} {
		address := []string{"10.88.1.2:80", "10.77.1.2:80", "10.77.2.2:80"}[i]
		for _, ns := range from {
			if got := ask(t, ns, address); got != fmt.Sprint("card ", i) {
				t.Errorf("%s answers %q", address, got)
			}
		}
	}
	serveIn(t, lan, "10.77.2.200:80", "the network")
	if got := ask(t, cards[2].ns, "10.77.2.200:80"); got != "the network" {
		t.Errorf("behind a macvlan the guest is answered %q", got)
	}

	// Where CNI gives no address the guests have their own.
	run(t, cards[3].ns, "ip", "addr", "add", "10.77.3.1/24", "dev", card)
	run(t, other, "ip", "addr", "add", "10.77.3.2/24", "dev", "net3")
	serveIn(t, cards[3].ns, "10.77.3.1:80", "unmanaged")
	if got := ask(t, other, "10.77.3.1:80"); got != "unmanaged" {
		t.Errorf("on a network without addresses the guest answers %q", got)
	}

	full := cards[0].plan
	full.NICs = nil
	for _, c := range cards {
		full.NICs = append(full.NICs, c.plan.NICs...)
	}
	n.undo(t, full)
	same(t, "pod", before, state(t, pod))
}

// Without an address for any card no DHCP server runs, nor on other interfaces.
func TestNoServerWithoutAddresses(t *testing.T) {
	n := newNode(t)
	pod := newNamespace(t)
	conf := map[string]any{"cniVersion": "0.4.0", "name": "net3", "type": "bridge", "bridge": "cni3"}
	runCNI(t, conf, "ADD", "none", pod, "net3")
	t.Cleanup(func() {
		runCNI(t, conf, "DEL", "none", pod, "net3")
		removeLink(t, "cni3")
	})
	m := n.start(t, idA, on(pod, "net3"))
	if pid, err := n.setup.Serve(t.Context(), m.plan); err != nil || pid != 0 || m.plan.Served() {
		t.Errorf("dnsmasq: pid %d, %v", pid, err)
	}
	n.noServer(t)
}

// The guest's own MAC address on a macvlan becomes the interface's.
func TestOwnMACOnMacvlan(t *testing.T) {
	n := newNode(t)
	lan, pod := newNamespace(t), newNamespace(t)
	run(t, hostNamespace, "ip", "link", "add", "lan0", "type", "veth", "peer", "name", "lan0", "netns", lan)
	t.Cleanup(func() { removeLink(t, "lan0") })
	run(t, hostNamespace, "ip", "link", "set", "lan0", "up")
	run(t, lan, "sh", "-c", "ip link set lan0 up; ip addr add 10.77.2.200/24 dev lan0")
	addNetworks(t, t.TempDir(), "own", pod)
	for _, link := range []string{"cni1", "cni3"} {
		t.Cleanup(func() { removeLink(t, link) })
	}
	before := state(t, pod)
	own := MAC{2, 0, 0, 0, 0, 0x42}
	m := n.start(t, idA, Pod{Netns: pod, Interfaces: []Interface{{Name: "net2", MAC: []byte(own)}}})
	m.configure(t, m.dhcp(t, "system"))
	m.serve(t, "guest")
	if got := ask(t, lan, netip.AddrPortFrom(m.plan.NICs[0].IPv4.Address.Addr(), 80).String()); got != "guest" {
		t.Errorf("the guest answers %q", got)
	}
	if got := run(t, lan, "ip", "neigh"); !strings.Contains(got, own.String()) {
		t.Errorf("the guest is seen as %s, want %s", got, own)
	}
	n.undo(t, m.plan)
	same(t, "pod", before, state(t, pod))
}

// The smallest MTU that IPv6 allows for, and a large one.
func TestMTU(t *testing.T) {
	for _, mtu := range []int{1280, 9000} {
		n := newNode(t)
		n.conf["mtu"] = mtu
		for _, binding := range []Binding{Bridge, Masquerade} {
			pod := n.addPod(t)
			m := n.start(t, idA, Pod{Netns: pod, Interfaces: []Interface{{Binding: binding}}})
			l := m.dhcp(t, "system")
			m.settled6(t)
			got := strings.TrimSpace(run(t, m.ns, "cat", "/proc/sys/net/ipv6/conf/eth0/mtu"))
			if want := min(mtu, 1500); l.mtu != mtu || got != fmt.Sprint(want) { // no more than the card's
				t.Errorf("%s: MTU %d by DHCP, %s by router advertisement, want %d and %d", binding, l.mtu, got, mtu, want)
			}
			m.configure(t, l)
			inPod(t, pod, func(h *netlink.Handle) error {
				for _, name := range []string{m.plan.NICs[0].Tap, m.plan.NICs[0].Bridge} {
					link, err := h.LinkByName(name)
					if err != nil {
						return err
					}
					if link.Attrs().MTU != mtu {
						t.Errorf("MTU of %s is %d, want %d", name, link.Attrs().MTU, mtu)
					}
				}
				return nil
			})
			// A packet as large as can be passes whole, both ways.
			m.echoWhole(t, mtu-28)
			n.undo(t, m.plan)
		}
		removeLink(t, n.bridge)
	}
}

// echoWhole sends a UDP datagram to the node that must not be cut, and has it sent back so.
func (m *testGuest) echoWhole(t *testing.T, size int) {
	t.Helper()
	node := listenOn(t, hostNamespace, "cni0", "10.88.1.1:9")
	defer node.Close()
	var guest net.Conn
	inPod(t, m.ns, func(*netlink.Handle) (err error) {
		guest, err = net.Dial("udp", "10.88.1.1:9")
		return err
	})
	defer guest.Close()
	for _, conn := range []any{node, guest} {
		raw, err := conn.(syscall.Conn).SyscallConn()
		if err == nil {
			err = raw.Control(func(fd uintptr) {
				err = unix.SetsockoptInt(int(fd), unix.IPPROTO_IP, unix.IP_MTU_DISCOVER, unix.IP_PMTUDISC_DO)
			})
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	data := make([]byte, 1<<16)
	if _, err := guest.Write(data[:size]); err != nil {
		t.Fatal(err)
	}
	deadline := time.Now().Add(2 * time.Minute)
	if err := errors.Join(node.SetDeadline(deadline), guest.SetDeadline(deadline)); err != nil {
		t.Fatal(err)
	}
	n, from, err := node.ReadFrom(data)
	if err != nil || n != size {
		t.Fatalf("of %d bytes %d have come, %v", size, n, err)
	}
	if _, err := node.WriteTo(data[:n], from); err != nil {
		t.Fatal(err)
	}
	if n, err = guest.Read(data); err != nil || n != size {
		t.Fatalf("of %d bytes %d have come back, %v", size, n, err)
	}
}
