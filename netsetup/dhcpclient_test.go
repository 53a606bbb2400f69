package netsetup

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"syscall"
	"testing"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// lease is what a guest learns by DHCP.
type lease struct {
	address  netip.Prefix
	router   netip.Addr
	routes   []Route
	servers  []netip.Addr
	domain   string
	searches []string
	hostname string
	mtu      int
	seconds  uint32
}

// Message types and options of RFC 2132, 3397 and 3442.
const (
	discover, offer, request, ack = 1, 2, 3, 5

	optMask, optRouter, optDNS, optHostname, optDomain = 1, 3, 6, 12, 15
	optMTU, optRequested, optLease, optType, optServer = 26, 50, 51, 53, 54
	optParameters, optMaxSize, optClient               = 55, 57, 61
	optSearch, optClassless                            = 119, 121
)

// dhcp gets a lease with a different client id, as firmware and operating
// systems have.
func (m *testGuest) dhcp(t *testing.T, client string) lease {
	t.Helper()
	return m.acked(t, client).lease(t)
}

// acked returns the server's answer to the request for a lease.
func (m *testGuest) acked(t *testing.T, client string) reply {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	conn := m.listen(t, "0.0.0.0:68")
	defer conn.Close()
	stop := context.AfterFunc(ctx, func() { conn.Close() })
	defer stop()

	offered := m.exchange(t, conn, discover, offer, option8(optClient, "\xff"+client))
	return m.exchange(t, conn, request, ack,
		append(option8(optClient, "\xff"+client),
			append(option8(optRequested, string(offered.yours)),
				option8(optServer, string(offered.options[optServer]))...)...))
}

// listen opens a UDP socket on the guest's card.
func (m *testGuest) listen(t *testing.T, address string) net.PacketConn {
	t.Helper()
	return listenOn(t, m.ns, card, address)
}

func listenOn(t *testing.T, ns, link, address string) net.PacketConn {
	t.Helper()
	config := net.ListenConfig{Control: func(_, _ string, raw syscall.RawConn) (err error) {
		controlErr := raw.Control(func(fd uintptr) {
			if err = unix.SetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_BROADCAST, 1); err == nil {
				err = unix.BindToDevice(int(fd), link)
			}
		})
		if err == nil {
			err = controlErr
		}
		return err
	}}
	var conn net.PacketConn
	inPod(t, ns, func(*netlink.Handle) (err error) {
		conn, err = config.ListenPacket(t.Context(), "udp4", address)
		return err
	})
	t.Cleanup(func() { conn.Close() })
	return conn
}

// exchange sends a message until its answer comes.
func (m *testGuest) exchange(t *testing.T, conn net.PacketConn, send, want byte, more []byte) reply {
	t.Helper()
	to := &net.UDPAddr{IP: net.IPv4bcast, Port: 67}
	buffer := make([]byte, 1500)
	for {
		if _, err := conn.WriteTo(m.message(send, more), to); err != nil {
			t.Fatal("send DHCP message:", err)
		}
		if err := conn.SetReadDeadline(time.Now().Add(time.Second)); err != nil {
			t.Fatal("no answer by DHCP:", err)
		}
		n, _, err := conn.ReadFrom(buffer)
		if err, ok := errors.AsType[net.Error](err); ok && err.Timeout() {
			continue // frames may be lost while a card comes up
		}
		if err != nil {
			t.Fatal("receive DHCP message:", err)
		}
		r, err := parseReply(buffer[:n])
		if err != nil {
			t.Fatal(err)
		}
		if send != discover && bytes.Equal(r.options[optType], []byte{offer}) {
			continue // a message that was sent twice is answered twice
		}
		if got := r.options[optType]; !bytes.Equal(got, []byte{want}) {
			t.Fatalf("DHCP answer to %d has type %v, want %d", send, got, want)
		}
		return r
	}
}

func (m *testGuest) message(kind byte, more []byte) []byte {
	packet := make([]byte, 240)
	packet[0], packet[1], packet[2] = 1, 1, 6
	binary.BigEndian.PutUint16(packet[10:], 0x8000) // answer by broadcast
	copy(packet[28:], m.plan.NICs[0].GuestMAC)
	copy(packet[236:], "\x63\x82\x53\x63")
	packet = append(packet, option8(optType, string(kind))...)
	packet = append(packet, option8(optParameters, string(append([]byte{optMask, optRouter, optDNS,
		optHostname, optDomain, optSearch, optClassless}, m.asks...)))...)
	if !m.small {
		packet = append(packet, option8(optMaxSize, "\x05\x78")...)
	}
	return append(append(packet, more...), 255)
}

func option8(code byte, value string) []byte {
	return append([]byte{code, byte(len(value))}, value...)
}

// reply is a message of a server, its options as they came.
type reply struct {
	yours   []byte
	options map[byte][]byte
}

func parseReply(packet []byte) (reply, error) {
	if len(packet) < 240 {
		return reply{}, fmt.Errorf("DHCP message of %d bytes", len(packet))
	}
	r := reply{yours: packet[16:20], options: map[byte][]byte{}}
	for rest := packet[240:]; len(rest) > 1 && rest[0] != 255; {
		if rest[0] == 0 {
			rest = rest[1:]
			continue
		}
		end := 2 + int(rest[1])
		r.options[rest[0]] = append(r.options[rest[0]], rest[2:end]...)
		rest = rest[end:]
	}
	return r, nil
}

func (r reply) lease(t *testing.T) lease {
	t.Helper()
	ones, _ := net.IPMask(r.options[optMask]).Size()
	return lease{
		address:  netip.PrefixFrom(toAddr(r.yours), ones),
		router:   toAddr(r.options[optRouter]),
		routes:   parseRoutes(r.options[optClassless]),
		servers:  parseAddrs(r.options[optDNS]),
		domain:   string(r.options[optDomain]),
		searches: parseNames(r.options[optSearch]),
		hostname: string(r.options[optHostname]),
		mtu:      int(binary.BigEndian.Uint16(r.options[optMTU])),
		seconds:  binary.BigEndian.Uint32(r.options[optLease]),
	}
}

func parseAddrs(data []byte) (addrs []netip.Addr) {
	for ; len(data) >= 4; data = data[4:] {
		addrs = append(addrs, toAddr(data[:4]))
	}
	return addrs
}

func parseRoutes(data []byte) (routes []Route) {
	for len(data) > 0 {
		bits := int(data[0])
		size := (bits + 7) / 8
		var dst [4]byte
		copy(dst[:], data[1:1+size])
		gateway := toAddr(data[1+size : 5+size])
		if gateway.IsUnspecified() {
			gateway = netip.Addr{}
		}
		routes = append(routes, Route{netip.PrefixFrom(netip.AddrFrom4(dst), bits), gateway})
		data = data[5+size:]
	}
	return routes
}

// parseNames reads the names of RFC 3397, whose pointers are offsets in data.
func parseNames(data []byte) (names []string) {
	for at := 0; at < len(data); {
		name, next := "", -1
		for data[at] != 0 {
			if data[at]&0xc0 == 0xc0 {
				if next < 0 {
					next = at + 2
				}
				at = int(data[at]&0x3f)<<8 | int(data[at+1])
				continue
			}
			if name != "" {
				name += "."
			}
			name += string(data[at+1 : at+1+int(data[at])])
			at += 1 + int(data[at])
		}
		if next < 0 {
			next = at + 1
		}
		names, at = append(names, name), next
	}
	return names
}
