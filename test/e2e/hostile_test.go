package e2e

import (
	"bytes"
	"encoding/hex"
	"maps"
	"net"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/vishvananda/netlink"
	"gotest.tools/v3/assert"

	"github.com/nodevirt/nodevirt/test/frames"
	"github.com/nodevirt/nodevirt/test/wait"
)

// A guest may send whatever it likes: what comes out of its card is what it may be.
func TestHostileGuest(t *testing.T) {
	for _, c := range []struct {
		binding                      string
		own, own6, gateway, gateway6 func(*pod) netip.Addr
	}{
		{"bridge", podAddress(0), podAddress(1), fixed("10.244.1.1"), fixed("fd00:10:244:1::1")},
		{"masquerade", fixed("10.0.2.2"), fixed("fd10:0:2::2"), fixed("10.0.2.1"), fixed("fd10:0:2::1")},
	} {
		t.Run(c.binding, func(t *testing.T) {
			t.Parallel()
			p := vmPod(t, annotated(vmiNetwork(`{"name":"default","`+c.binding+`":{}}`, `{"name":"default","pod":{}}`)))
			vm := p.vm(suite.tiny).start()
			vm.up()
			mac, err := net.ParseMAC(vm.guest().Interfaces[0].MAC)
			assert.NilError(t, err)
			v := frames.Villain{
				MAC: mac, OtherMAC: net.HardwareAddr{2, 0, 0, 0, 0, 0x66},
				Own: c.own(p), Other: c.own(p).Next(), Gateway: c.gateway(p),
				Own6: c.own6(p), Other6: c.own6(p).Next(), Gateway6: c.gateway6(p),
				Local: linkLocal(mac),
			}
			assert.NilError(t, p.inside(func() error {
				bridge, err := netlink.LinkByName("nvbr0")
				if err != nil {
					return err
				}
				v.PodMAC = bridge.Attrs().HardwareAddr
				v.Router6 = linkLocal(v.PodMAC)
				return nil
			}))
			vm.installs("villain")
			vm.keepsToItself(v)
		})
	}
}

// keepsToItself has the guest send what is hostile, and behind it what is not, and looks at what
// reaches the pod.
func (c *container) keepsToItself(v frames.Villain) {
	c.t.Helper()
	var inside frames.Sniffer
	assert.NilError(c.t, c.inside(func() (err error) {
		inside, err = frames.Sniff("nvbr0", wait.Patience)
		return err
	}))
	defer func() { _ = inside.Close() }()
	hostile, honest := v.Hostile(), v.Honest()
	var lines strings.Builder
	for _, kind := range []map[string][]byte{hostile, honest} {
		for _, name := range slices.Sorted(maps.Keys(kind)) {
			lines.WriteString(hex.EncodeToString(kind[name]) + "\n")
		}
	}
	c.runs(lines.String())
	for _, name := range slices.Sorted(maps.Keys(honest)) { // frames keep their order
		for {
			got, err := inside.Next()
			if err != nil {
				c.t.Fatalf("wait for %s: %v", name, err)
			}
			if bytes.HasPrefix(got.Data, honest[name]) {
				break
			}
			for bad, data := range hostile {
				if bytes.HasPrefix(got.Data, data) {
					c.t.Errorf("comes through: %s", bad)
				}
			}
		}
	}
}

// podAddress is the pod's address of a place in its status.
func podAddress(place int) func(*pod) netip.Addr {
	return func(p *pod) netip.Addr {
		network := p.status().GetNetwork()
		all := []string{network.GetIp()}
		for _, more := range network.GetAdditionalIps() {
			all = append(all, more.Ip)
		}
		return netip.MustParseAddr(all[place])
	}
}

func fixed(address string) func(*pod) netip.Addr {
	return func(*pod) netip.Addr { return netip.MustParseAddr(address) }
}

// linkLocal is the address that a card gives itself (RFC 4291, appendix A).
func linkLocal(mac net.HardwareAddr) netip.Addr {
	return netip.AddrFrom16([16]byte{0xfe, 0x80, 8: mac[0] ^ 2, mac[1], mac[2], 0xff, 0xfe, mac[3], mac[4], mac[5]})
}
