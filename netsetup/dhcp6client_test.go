package netsetup

import (
	"context"
	"encoding/binary"
	"net"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/nodevirt/nodevirt/test/wait"
)

// lease6 is what a guest learns by DHCPv6.
type lease6 struct {
	address          netip.Addr
	valid, preferred uint32
	servers          []netip.Addr
	searches         []string
}

// Message types and options of RFC 8415 and 3646.
const (
	solicit6, reply6 = 1, 7

	opt6Client, opt6IANA, opt6Address, opt6Request, opt6Elapsed = 1, 3, 5, 6, 8
	opt6Rapid, opt6DNS, opt6Search                              = 14, 23, 24
)

// dhcp6 gets a lease in one exchange, under an identifier that the client has made up.
func (m *testGuest) dhcp6(t *testing.T, client string) lease6 {
	t.Helper()
	m.settled6(t)
	return m.lease6(t, client)
}

// dhcp6On is dhcp6 on a card that has a route to a subnet on the link, and no router.
func (m *testGuest) dhcp6On(t *testing.T, client, subnet string) lease6 {
	t.Helper()
	wait.Until(t, "a route to "+subnet, func() bool {
		return strings.Contains(run(t, m.ns, "ip", "-6", "route", "show", subnet), "dev "+card)
	})
	return m.lease6(t, client)
}

// lease6 gets a lease in one exchange.
func (m *testGuest) lease6(t *testing.T, client string) lease6 {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	var conn net.PacketConn
	inPod(t, m.ns, func(*netlink.Handle) (err error) {
		conn, err = (&net.ListenConfig{}).ListenPacket(ctx, "udp6", "[::%"+card+"]:546")
		return err
	})
	defer conn.Close()
	to := &net.UDPAddr{IP: net.ParseIP("ff02::1:2"), Port: 547, Zone: card}
	message := append([]byte{solicit6, 1, 2, 3}, options6(map[uint16]string{
		opt6Client:  "\x00\x04" + strings.Repeat(client, 16)[:16], // DUID-UUID
		opt6IANA:    client[:1] + "\x00\x00\x01" + strings.Repeat("\x00", 8),
		opt6Request: "\x00\x17\x00\x18", opt6Elapsed: "\x00\x00", opt6Rapid: "",
	})...)
	buffer := make([]byte, 1500)
	for {
		if _, err := conn.WriteTo(message, to); err != nil {
			t.Fatal("send DHCPv6 message:", err)
		}
		if err := conn.SetReadDeadline(time.Now().Add(time.Second)); err != nil {
			t.Fatal(err)
		}
		n, _, err := conn.ReadFrom(buffer)
		if ctx.Err() != nil {
			t.Fatal("no answer by DHCPv6:", err)
		}
		if err != nil {
			continue
		}
		if n < 4 || buffer[0] != reply6 {
			t.Fatalf("DHCPv6 answer of type %d", buffer[0])
		}
		return parseLease6(t, buffer[4:n])
	}
}

func options6(all map[uint16]string) (text []byte) {
	for code, value := range all {
		text = binary.BigEndian.AppendUint16(text, code)
		text = binary.BigEndian.AppendUint16(text, uint16(len(value)))
		text = append(text, value...)
	}
	return text
}

func parseOptions6(data []byte) map[uint16][]byte {
	all := map[uint16][]byte{}
	for len(data) >= 4 {
		end := 4 + int(binary.BigEndian.Uint16(data[2:]))
		all[binary.BigEndian.Uint16(data)] = data[4:end]
		data = data[end:]
	}
	return all
}

func parseLease6(t *testing.T, data []byte) (l lease6) {
	t.Helper()
	options := parseOptions6(data)
	if len(options[opt6IANA]) < 12 {
		t.Fatalf("DHCPv6 answer without an address: %q", data)
	}
	address := parseOptions6(options[opt6IANA][12:])[opt6Address]
	if len(address) < 24 {
		t.Fatalf("DHCPv6 answer without an address: %q", options[opt6IANA])
	}
	l.address = toAddr(address[:16])
	l.preferred, l.valid = binary.BigEndian.Uint32(address[16:]), binary.BigEndian.Uint32(address[20:])
	for servers := options[opt6DNS]; len(servers) >= 16; servers = servers[16:] {
		l.servers = append(l.servers, toAddr(servers[:16]))
	}
	l.searches = parseNames(options[opt6Search])
	return l
}

// settled6 waits until the guest's kernel has a link-local address and knows its router.
func (m *testGuest) settled6(t *testing.T) {
	t.Helper()
	for deadline := time.Now().Add(2 * time.Minute); ; time.Sleep(5 * time.Millisecond) {
		ready, router := false, m.router6(t)
		inPod(t, m.ns, func(h *netlink.Handle) error {
			link, err := h.LinkByName(card)
			if err != nil {
				return err
			}
			addrs, err := h.AddrList(link, netlink.FAMILY_V6)
			for _, a := range addrs {
				ready = ready || a.Flags&unix.IFA_F_TENTATIVE == 0
			}
			return err
		})
		if ready && router.IsValid() {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("the guest has no router: link-local address %v, router %v", ready, router)
		}
	}
}

// router6 is the gateway of the guest's default route.
func (m *testGuest) router6(t *testing.T) (router netip.Addr) {
	t.Helper()
	inPod(t, m.ns, func(h *netlink.Handle) error {
		routes, err := h.RouteListFiltered(netlink.FAMILY_V6, &netlink.Route{Table: unix.RT_TABLE_MAIN}, netlink.RT_FILTER_TABLE)
		for _, r := range routes {
			if r.Dst == nil || r.Dst.IP.IsUnspecified() {
				router = toAddr(r.Gw)
			}
		}
		return err
	})
	return router
}

// configure6 does what a guest does with its address; its routes are the kernel's.
func (m *testGuest) configure6(t *testing.T, l lease6) {
	t.Helper()
	inPod(t, m.ns, func(h *netlink.Handle) error {
		link, err := h.LinkByName(card)
		if err != nil {
			return err
		}
		return h.AddrAdd(link, &netlink.Addr{IPNet: toIPNet(netip.PrefixFrom(l.address, 128)), Flags: unix.IFA_F_NODAD})
	})
}
