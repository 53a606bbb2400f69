package netsetup

import (
	"bytes"
	"maps"
	"net"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/vishvananda/netlink"

	"github.com/nodevirt/nodevirt/test/frames"
)

func newVillain(n NIC) frames.Villain {
	return frames.Villain{
		MAC: net.HardwareAddr(n.GuestMAC), OtherMAC: net.HardwareAddr{2, 0, 0, 0, 0, 0x66}, PodMAC: net.HardwareAddr(n.BridgeMAC),
		Own: n.IPv4.Address.Addr(), Other: n.IPv4.Address.Addr().Next(), Gateway: n.IPv4.Gateway,
		Own6: n.IPv6.Address.Addr(), Other6: n.IPv6.Address.Addr().Next(), Gateway6: n.IPv6.Gateway,
		Local: linkLocal(n.GuestMAC), Router6: linkLocal(n.BridgeMAC),
	}
}

// A guest may send whatever it likes: what comes out of its tap is what it may be.
func TestGuestIsItselfAlone(t *testing.T) {
	for _, binding := range []Binding{Bridge, Masquerade} {
		n := newNode(t)
		pod := n.addPod(t)
		m := n.start(t, idA, Pod{Netns: pod, Interfaces: []Interface{{Binding: binding}}})
		inPod(t, m.ns, silence)
		nic := m.plan.NICs[0]
		v := newVillain(nic)
		guest, inside := raw(t, m.ns, card), sniff(t, pod, nic.Bridge)
		hostile := v.Hostile()
		for _, name := range slices.Sorted(maps.Keys(hostile)) {
			send(t, guest, hostile[name])
		}
		honest := v.Honest()
		for _, name := range slices.Sorted(maps.Keys(honest)) {
			send(t, guest, honest[name])
		}
		for _, name := range slices.Sorted(maps.Keys(honest)) { // frames keep their order
			for {
				got := next(t, inside)
				if bytes.Equal(got.Data, honest[name]) {
					break
				}
				for bad, data := range hostile {
					if bytes.Equal(got.Data, data) {
						t.Errorf("%s: comes through: %s", binding, bad)
					}
				}
			}
		}
		n.undo(t, m.plan)
		removeLink(t, n.bridge)
	}
}

// A guest takes nothing from its neighbours: only frames with its own addresses leave the pod, and none
// with link-local addresses, which could be a neighbour's.
func TestGuestTakesNothingFromNeighbours(t *testing.T) {
	n := newNode(t)
	pod := n.addPod(t)
	m := n.start(t, idA, Pod{Netns: pod})
	inPod(t, m.ns, silence)
	v := newVillain(m.plan.NICs[0])
	guest, outside := raw(t, m.ns, card), sniff(t, hostNamespace, n.bridge)
	bad := v.Hostile()
	maps.Copy(bad, v.Nameless())
	for _, name := range slices.Sorted(maps.Keys(bad)) {
		send(t, guest, bad[name])
	}
	honest := v.Honest()
	for _, name := range []string{"UDP", "ARP announcement", "solicitation", "own advertisement", "own IPv6 in use?", "multicast membership"} {
		send(t, guest, honest[name])
		for { // frames keep their order
			got := next(t, outside)
			if bytes.Equal(got.Data, honest[name]) {
				break
			}
			for what, data := range bad {
				if bytes.Equal(got.Data, data) {
					t.Errorf("leaves the pod: %s", what)
				}
			}
		}
	}
}

// silence keeps the guest's own kernel out of a test's frames.
func silence(h *netlink.Handle) error {
	link, err := h.LinkByName(card)
	if err != nil {
		return err
	}
	return h.LinkSetARPOff(link)
}

// Neither the pod's own addresses nor any other way leads a guest to what sidecars listen on.
func TestGuestDoesNotReachThePodsOwnSide(t *testing.T) {
	for _, binding := range []Binding{Bridge, Masquerade} {
		n := newNode(t)
		pod := n.addPod(t)
		m := n.start(t, idA, Pod{Netns: pod, Interfaces: []Interface{{Binding: binding}}})
		m.configure(t, m.dhcp(t, "system"))
		m.configure6(t, m.dhcp6(t, "system"))
		var sidecar net.PacketConn
		inPod(t, pod, func(*netlink.Handle) (err error) {
			sidecar, err = net.ListenPacket("udp", ":81")
			return err
		})
		t.Cleanup(func() { sidecar.Close() })
		nic := m.plan.NICs[0]
		v := newVillain(nic)
		guest := raw(t, m.ns, card)
		for _, to := range []netip.Addr{nic.IPv4.Pod.Addr(), netip.MustParseAddr("10.88.1.2"), netip.MustParseAddr("127.0.0.1")} {
			send(t, guest, v.ToPod(to, 81))
		}
		for _, to := range []netip.Addr{nic.IPv6.Pod.Addr(), v.Router6, netip.MustParseAddr("fd00:88::2"), netip.IPv6Loopback()} {
			send(t, guest, v.ToPod(to, 81))
		}
		m.dhcp6(t, "system") // behind them
		var own net.Conn
		inPod(t, pod, func(*netlink.Handle) (err error) {
			own, err = net.Dial("udp", "127.0.0.1:81")
			return err
		})
		if _, err := own.Write([]byte("own")); err != nil {
			t.Fatal(err)
		}
		data := make([]byte, 100)
		if size, from, err := sidecar.ReadFrom(data); err != nil || !strings.HasPrefix(string(data[:size]), "own") {
			t.Errorf("%s: a sidecar hears %q from %v, %v", binding, data[:size], from, err)
		}
		own.Close()
		n.undo(t, m.plan)
		removeLink(t, n.bridge)
	}
}

// A masqueraded guest reaches its own network and no other one of the pod's.
func TestGuestStaysOnItsNetwork(t *testing.T) {
	n := newNode(t)
	pod, peer := n.addPod(t), newNamespace(t)
	run(t, pod, "ip", "link", "add", "net1", "type", "veth", "peer", "name", "net1", "netns", peer)
	run(t, pod, "sh", "-c", "ip addr add 10.77.0.1/24 dev net1; ip link set net1 up")
	run(t, peer, "sh", "-c", "ip addr add 10.77.0.2/24 dev net1; ip link set net1 up; ip route add default via 10.77.0.1")
	m := n.start(t, idA, masqueraded(pod))
	m.configure(t, m.dhcp(t, "system"))
	listener := listenOn(t, peer, "net1", "0.0.0.0:9")
	say := func(ns, text string) {
		inPod(t, ns, func(*netlink.Handle) error {
			conn, err := net.Dial("udp", "10.77.0.2:9")
			if err != nil {
				return err
			}
			defer conn.Close()
			_, err = conn.Write([]byte(text))
			return err
		})
	}
	say(m.ns, "guest")
	m.dhcp(t, "system") // behind it
	say(pod, "pod")
	data := make([]byte, 100)
	if size, _, err := listener.ReadFrom(data); err != nil || string(data[:size]) != "pod" {
		t.Errorf("the pod's other network hears %q, %v", data[:size], err)
	}
}
