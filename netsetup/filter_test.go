package netsetup

import (
	"net"
	"net/netip"
	"testing"

	"gotest.tools/v3/golden"
	"sigs.k8s.io/knftables"
)

func TestRules(t *testing.T) {
	plain := NIC{
		Binding: Bridge, Interface: "eth0", Bridge: "nvbr0", Tap: "nv0", GuestMAC: MAC{0x0a, 0x58, 0x0a, 0x58, 0x01, 0x02},
		BridgeMAC: MAC{2, 0, 0, 0, 0, 3},
		IPv4:      Addressing{Address: netip.MustParsePrefix("10.88.1.2/24"), Pod: netip.MustParsePrefix("169.254.75.10/32")},
	}
	private := plain
	private.Binding = Masquerade
	private.IPv4 = Addressing{Address: netip.MustParsePrefix("10.0.2.2/24"), Pod: netip.MustParsePrefix("10.0.2.1/24")}
	private.IPv6 = Addressing{Address: netip.MustParsePrefix("fd10:0:2::2/120"), Pod: netip.MustParsePrefix("fd10:0:2::1/120")}
	private.Original.Addresses = []SavedAddress{
		{Address: netip.MustParsePrefix("10.88.1.2/24")}, {Address: netip.MustParsePrefix("fd00:88::2/64")},
	}
	listed := private
	listed.Ports = []Port{{"tcp", 80, 0}, {"udp", 53, 0}, {"tcp", 443, 443}, {"tcp", 80, 0}, {"tcp", 30000, 31000}}
	bare := plain
	bare.Interface, bare.Bridge, bare.Tap, bare.IPv4 = "net1", "nvbr1", "nv0.1", Addressing{}
	was := []Sysctl{{Key: "ipv4/conf/eth0/forwarding"}, {Key: allForwarding}}
	for name, plan := range map[string]Plan{
		"bridge":     {NICs: []NIC{plain}},
		"masquerade": {NICs: []NIC{private}, Sysctls: was},
		"ports":      {NICs: []NIC{listed}, Sysctls: was},
		"two":        {NICs: []NIC{plain, bare}},
	} {
		t.Run(name, func(t *testing.T) {
			fake := knftables.NewFake("", "")
			tx := fake.NewTransaction()
			makeTables(tx, plan)
			if err := fake.Run(t.Context(), tx); err != nil {
				t.Fatal(err)
			}
			golden.Assert(t, tx.String(), "rules-"+name+".nft")

			before := fake.Dump()
			tx = fake.NewTransaction()
			makeTables(tx, plan)
			if err := fake.Run(t.Context(), tx); !knftables.IsAlreadyExists(err) {
				t.Errorf("tables are made twice: %v", err)
			}
			tx = fake.NewTransaction()
			removeTables(tx)
			makeTables(tx, plan)
			if err := fake.Run(t.Context(), tx); err != nil {
				t.Fatal(err)
			}
			if got := fake.Dump(); got != before {
				t.Errorf("the replaced tables are\n%s\nand were\n%s", got, before)
			}
		})
	}
}

// Frames keep their order: what had come before the marker would have been seen.
const (
	markerPort = 9
	clientPort = 68
	serverPort = 67
)

func TestDHCPStaysInThePod(t *testing.T) {
	n := newNode(t)
	m := n.start(t, idA, Pod{Netns: n.addPod(t)})
	outside := sniff(t, hostNamespace, n.bridge)
	m.configure(t, m.dhcp(t, "system"))
	broadcast(t, m.listen(t, "0.0.0.0:0"), markerPort)
	for frame := next(t, outside); frame.Port != markerPort; frame = next(t, outside) {
		if frame.Port == serverPort || frame.Port == clientPort {
			t.Errorf("DHCP of the guest has left the pod: %v", frame)
		}
	}

	inside := sniff(t, m.ns, card)
	stranger := listenOn(t, hostNamespace, n.bridge, "0.0.0.0:0")
	for _, port := range []int{clientPort, serverPort, markerPort} {
		broadcast(t, stranger, port)
	}
	for frame := next(t, inside); frame.Port != markerPort; frame = next(t, inside) {
		if frame.Port == serverPort || frame.Port == clientPort {
			t.Errorf("DHCP of a stranger has come in: %v", frame)
		}
	}
}

// The CNI bridge sends broadcasts back to where they came from (hairpin mode).
func TestGuestDoesNotHearItself(t *testing.T) {
	n := newNode(t)
	m := n.start(t, idA, Pod{Netns: n.addPod(t)})
	m.configure(t, m.dhcp(t, "system"))
	inside, outside := sniff(t, m.ns, card), sniff(t, hostNamespace, n.bridge)
	broadcast(t, m.listen(t, "0.0.0.0:0"), markerPort)
	for frame := next(t, outside); frame.Port != markerPort; frame = next(t, outside) {
	}
	broadcast(t, listenOn(t, hostNamespace, n.bridge, "0.0.0.0:0"), markerPort)
	for {
		frame := next(t, inside)
		if m.plan.NICs[0].GuestMAC.equal(frame.Source) {
			t.Errorf("the guest's own frame has come back: %v", frame)
		} else if frame.Port == markerPort {
			return
		}
	}
}

// All pods have the same link-local address: it must not be seen from outside.
func TestLinkLocalAddressStaysInThePod(t *testing.T) {
	n := newNode(t)
	pod := n.addPod(t)
	m := n.start(t, idA, Pod{Netns: pod})
	m.configure(t, m.dhcp(t, "system"))
	inside, guest := sniff(t, pod, bridgeName(0)), sniff(t, m.ns, card)
	broadcast(t, listenOn(t, hostNamespace, n.bridge, "0.0.0.0:0"), markerPort)
	for frame := next(t, guest); frame.Port != markerPort; frame = next(t, guest) {
	}
	broadcast(t, m.listen(t, "0.0.0.0:0"), markerPort+1)
	for frame := next(t, inside); frame.Port != markerPort+1; frame = next(t, inside) {
		if frame.Port == markerPort {
			t.Errorf("the pod's own side of the bridge hears the network: %v", frame)
		}
	}
}

func broadcast(t *testing.T, conn net.PacketConn, port int) {
	t.Helper()
	to := &net.UDPAddr{IP: net.IPv4bcast, Port: port}
	if _, err := conn.WriteTo([]byte("hello"), to); err != nil {
		t.Fatal(err)
	}
}
