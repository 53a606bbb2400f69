package netsetup

import (
	"encoding/binary"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/vishvananda/netlink"

	"github.com/nodevirt/nodevirt/test/wait"
)

// TestCardWithoutGateway: a card without a gateway has no default route in the guest, which reaches the hosts of the card's
// subnet all the same.
func TestCardWithoutGateway(t *testing.T) {
	n := newNode(t)
	for _, binding := range []Binding{Bridge, Masquerade} {
		t.Run(string(binding), func(t *testing.T) {
			pod := n.addPod(t)
			peer := islands(t, pod)
			before := state(t, pod)
			wanted := on(pod, "eth0", "net1")
			wanted.Interfaces[0].Binding = binding
			cards := n.startCards(t, idA, wanted)
			first, second := cards[0], cards[1]
			lifetimes := advertisedLifetimes(t, first)
			first.settled6(t)
			l := second.dhcp6On(t, "system", "fd97:7::/64")
			if want := netip.MustParseAddr("fd97:7::5"); l.address != want {
				t.Errorf("the card has %s, want %s", l.address, want)
			}
			second.configure6(t, l)
			if router := second.router6(t); router.IsValid() {
				t.Errorf("the card has the default router %s", router)
			}
			if got, want := first.router6(t), linkLocal(first.plan.NICs[0].BridgeMAC); got != want {
				t.Errorf("the guest's router is %s, want %s", got, want)
			}
			serveIn(t, peer, "[fd97:7::9]:80", "neighbour")
			serveIn(t, second.ns, "[fd97:7::5]:80", "guest")
			if got := ask(t, second.ns, "[fd97:7::9]:80"); got != "neighbour" {
				t.Errorf("the neighbour answers %q", got)
			}
			if got := ask(t, peer, "[fd97:7::5]:80"); got != "guest" {
				t.Errorf("the guest answers its neighbour %q", got)
			}
			if got := ask(t, pod, "[fd97:7::5]:80"); got != "guest" {
				t.Errorf("the guest answers a sidecar %q", got)
			}
			// No host answers for the address from which the pod sends its advertisements.
			unanswered(t, peer, "fd97:7::")
			for _, lifetime := range lifetimes() {
				if lifetime != routerLifetime {
					t.Errorf("the first card got an advertisement with the router lifetime %d", lifetime)
				}
			}
			full := first.plan
			full.NICs = append(append([]NIC(nil), first.plan.NICs...), second.plan.NICs...)
			n.undo(t, full)
			same(t, "pod", before, state(t, pod))
		})
	}
}

// advertisedLifetimes receives a guest's router advertisements. The function that it returns returns their router lifetimes
// when dnsmasq has sent the first ones of each card, for which it takes five seconds.
func advertisedLifetimes(t *testing.T, m *testGuest) func() []uint16 {
	t.Helper()
	var conn net.PacketConn
	inPod(t, m.ns, func(*netlink.Handle) (err error) {
		conn, err = net.ListenPacket("ip6:ipv6-icmp", "::")
		return err
	})
	t.Cleanup(func() { conn.Close() })
	received := make(chan []uint16, 1)
	go func() {
		var all []uint16
		for packet := make([]byte, 2048); ; {
			n, _, err := conn.ReadFrom(packet)
			if err != nil {
				received <- all
				return
			}
			if n > 8 && packet[0] == 134 { // router advertisement
				all = append(all, binary.BigEndian.Uint16(packet[6:]))
			}
		}
	}()
	sent := time.After(6 * time.Second)
	return func() []uint16 {
		<-sent
		conn.Close()
		all := <-received
		if len(all) == 0 {
			t.Error("the guest got no router advertisement")
		}
		return all
	}
}

// islands gives a pod the interface net1 with an IPv6 address and no gateway, and returns a neighbour's namespace.
func islands(t *testing.T, pod string) string {
	t.Helper()
	peer := newNamespace(t)
	run(t, peer, "ip", "link", "add", "net1", "type", "veth", "peer", "name", "net1", "netns", pod)
	run(t, peer, "sh", "-c", "ip link set net1 up; ip addr add fd97:7::9/64 dev net1 nodad")
	run(t, pod, "sh", "-c", "ip link set net1 up; ip addr add fd97:7::5/64 dev net1 nodad")
	return peer
}

// unanswered fails if a host answers for an address.
func unanswered(t *testing.T, ns, address string) {
	t.Helper()
	var conn net.Conn
	inPod(t, ns, func(*netlink.Handle) (err error) {
		if conn, err = net.Dial("udp", "["+address+"]:9"); err == nil {
			_, err = conn.Write([]byte("hello"))
		}
		return err
	})
	defer conn.Close()
	wait.Until(t, "failure to find "+address, func() bool {
		return strings.Contains(run(t, ns, "ip", "-6", "neigh", "show", "to", address), "FAILED")
	})
}

func TestAdvertised(t *testing.T) {
	onLink := func(routes ...string) (all []Route) {
		for _, r := range routes {
			all = append(all, Route{Destination: netip.MustParsePrefix(r)})
		}
		return all
	}
	for _, c := range []struct {
		address, gateway string
		routes           []Route
		macvlan          bool
		want             string
	}{
		{address: "fd97:7::5/64", want: "[fd97:7::/64]"},
		{address: "fd97:7::5/64", gateway: "fd97:7::1", want: "[]"},
		{address: "fd97:7::5/64", gateway: "fd97:7::1", macvlan: true, want: "[fd97:7::/64]"},
		{address: "fd97:7::5/48", want: "[fd97:7::/64]"},
		{address: "fd97:7::5/112", want: "[fd97:7::/112]"},
		{address: "fd97:7::5/128", want: "[]"},
		{address: "fd97:7::6e6f:6465:7669:7274/128", want: "[]"},
		{address: "fd97:7::5/64", routes: onLink("fd98::/64", "fd97:7::/80", "fd99::/32", "fd99::1/128"), want: "[fd97:7::/64 fd98::/64]"},
	} {
		n := NIC{Binding: Bridge, Bridge: bridgeName(0), SharedMAC: c.macvlan, IPv6: Addressing{Address: netip.MustParsePrefix(c.address), Routes: c.routes}}
		if c.gateway != "" {
			n.IPv6.Gateway = netip.MustParseAddr(c.gateway)
		}
		if got := fmt.Sprint(n.advertised()); got != c.want {
			t.Errorf("%s advertises %s, want %s", c.address, got, c.want)
		}
		leased, _ := n.leased()
		if !leased.Contains(n.IPv6.Address.Addr()) ||
			!slices.ContainsFunc(n.hidden(), func(own netip.Prefix) bool { return leased.Contains(own.Addr()) && own.Addr() != n.IPv6.Address.Addr() }) {
			t.Errorf("the range of %s is %s, and the bridge has %s", c.address, leased, n.hidden())
		}
	}
}

func TestDefaultRouter(t *testing.T) {
	gateway := NIC{IPv6: Addressing{Gateway: netip.MustParseAddr("fe80::1")}}
	routed := NIC{IPv6: Addressing{Routes: []Route{{netip.MustParsePrefix("2000::/3"), netip.MustParseAddr("fd00::1")}}}}
	point := NIC{IPv6: Addressing{Routes: []Route{{Destination: netip.MustParsePrefix("::/0")}}}}
	for name, c := range map[string]struct {
		card   NIC
		others []NIC
		want   bool
	}{
		"a gateway": {card: gateway, want: true}, "nothing": {}, "a gateway behind a macvlan": {card: NIC{SharedMAC: true, IPv6: gateway.IPv6}}, "routes": {card: routed, want: true},
		"routes beside a gateway": {card: routed, others: []NIC{gateway}}, "a route to everything": {card: point, want: true},
	} {
		if got := (Plan{NICs: append(c.others, c.card)}).defaultRouter(c.card); got != c.want {
			t.Errorf("%s: default router %v", name, got)
		}
	}
}

// TestTwoAddressesOfAFamily: CNI's first address of each family is the guest's, and the first in the VM's status.
func TestTwoAddressesOfAFamily(t *testing.T) {
	for binding, inside := range map[Binding]string{Bridge: "[10.88.1.2 fd00:88::2]", Masquerade: "[10.0.2.2 fd10:0:2::2]"} {
		n := newNode(t)
		n.conf["isGateway"] = false
		n.conf["ipam"].(map[string]any)["ranges"] = [][]map[string]string{
			{{"subnet": "10.88.1.0/24"}}, {{"subnet": "10.89.1.0/24"}}, {{"subnet": "fd00:88::/64"}}, {{"subnet": "fd00:89::/64"}},
		}
		outside := map[Binding]string{
			Bridge: inside, Masquerade: "[10.88.1.2 10.89.1.2 fd00:88::2 fd00:89::2]",
		}[binding]
		pod := n.addPod(t)
		before := state(t, pod)
		m := n.start(t, idA, Pod{Netns: pod, Interfaces: []Interface{{Binding: binding}}})
		if got := fmt.Sprint(m.plan.GuestAddresses()); got != inside {
			t.Errorf("%s: the guest has %s, want %s", binding, got, inside)
		}
		if got := fmt.Sprint(m.plan.PodIPs()); got != outside {
			t.Errorf("%s: the guest is reached at %s, want %s", binding, got, outside)
		}
		n.undo(t, m.plan)
		same(t, "pod", before, state(t, pod))
		removeLink(t, n.bridge)
	}
}
