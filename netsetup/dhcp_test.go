package netsetup

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"gotest.tools/v3/golden"
)

func TestDHCPConfig(t *testing.T) {
	plain := func(change func(*Plan, *NIC)) Plan {
		n := NIC{
			Bridge: bridgeName(0), MTU: 1500, GuestMAC: MAC{0x0a, 0x58, 0x0a, 0x58, 0x01, 0x02},
			IPv4: Addressing{
				Address: netip.MustParsePrefix("10.88.1.2/24"),
				Gateway: netip.MustParseAddr("10.88.1.1"),
			},
		}
		var p Plan
		change(&p, &n)
		p.NICs = append(p.NICs, n)
		return p
	}
	names := func(p *Plan, _ *NIC) {
		p.Hostname = "db-0"
		p.Nameservers = addrs("10.96.0.10", "10.96.0.11")
		p.Searches = []string{"default.svc.cluster.local", "svc.cluster.local"}
	}
	for name, plan := range map[string]Plan{
		"plain": plain(func(*Plan, *NIC) {}),
		"named": plain(names),
		"routed": plain(func(p *Plan, n *NIC) {
			names(p, n)
			n.IPv4.Routes = []Route{{netip.MustParsePrefix("192.0.2.0/24"), netip.MustParseAddr("10.88.1.7")}}
		}),
		"calico": plain(func(_ *Plan, n *NIC) {
			n.MTU = 1450
			n.IPv4 = Addressing{
				Address: netip.MustParsePrefix("10.88.1.2/32"),
				Gateway: netip.MustParseAddr("169.254.1.1"),
				Routes:  []Route{{Destination: netip.MustParsePrefix("169.254.1.1/32")}},
			}
		}),
		"options": plain(func(_ *Plan, n *NIC) { n.DHCP = someOptions() }),
		"island":  plain(func(_ *Plan, n *NIC) { n.IPv4.Gateway = netip.Addr{} }),
	} {
		t.Run(name, func(t *testing.T) { golden.Assert(t, dhcpConfig(plan), name+".conf") })
	}
}

// someOptions have texts that dnsmasq reads as something else without quotes.
func someOptions() DHCPOptions {
	return DHCPOptions{
		BootFile: `boot\x64\wdsnbp.com`, TFTPServer: "192.0.2.7", NTPServers: addrs("192.0.2.8", "192.0.2.9"),
		Private: map[uint8]string{254: `a,"b" #c`, 224: "01:02", 230: "7"},
	}
}

func TestFittingSearches(t *testing.T) {
	var domains []string
	for i := range 32 { // Kubernetes' limit
		domains = append(domains, fmt.Sprintf("namespace-%02d.svc.cluster.local", i))
	}
	got := fittingSearches(domains)
	if want := domains[:255/32]; !slices.Equal(got, want) {
		t.Errorf("%d domains fit, want %d", len(got), len(want))
	}
	if got := fittingSearches(domains[:3]); !slices.Equal(got, domains[:3]) {
		t.Errorf("of three domains %v fit", got)
	}
}

// TestSettingsComeBeforeOptions: what does not fit into a small client's packet is an option of the VM's author, not the
// search list.
func TestSettingsComeBeforeOptions(t *testing.T) {
	n := newNode(t)
	searches := []string{"default.svc.cluster.local", "svc.cluster.local", "cluster.local"}
	for _, small := range []bool{false, true} {
		m := n.start(t, idA, Pod{Netns: n.addPod(t), Searches: searches, Interfaces: []Interface{{
			DHCP: DHCPOptions{Private: map[uint8]string{230: strings.Repeat("x", 250), 231: strings.Repeat("y", 250)}},
		}}})
		m.small = small
		reply := m.acked(t, "system")
		if got := reply.lease(t).searches; !slices.Equal(got, searches) {
			t.Errorf("small client %v: search list %v", small, got)
		}
		if got := len(reply.options[230]) + len(reply.options[231]); !small && got != 500 {
			t.Errorf("of 500 bytes of options a client gets %d", got)
		}
		n.undo(t, m.plan)
	}
}

// FuzzOptions: no text ends its quotes or its line.
func FuzzOptions(f *testing.F) {
	f.Add("boot", uint8(224))
	f.Add("a\"\nport=53", uint8(1))
	f.Fuzz(func(t *testing.T, text string, number uint8) {
		o := DHCPOptions{BootFile: text, Private: map[uint8]string{number: text}}
		if o.check() != nil {
			return
		}
		for _, line := range o.values() {
			number, quoted, _ := strings.Cut(line, ",")
			inner := strings.ReplaceAll(quoted[1:len(quoted)-1], `\\`, "")
			if strings.ContainsAny(line, "\n\r") || strings.Contains(strings.ReplaceAll(inner, `\"`, ""), `"`) ||
				strings.HasSuffix(inner, `\`) || len(line) > 600 || number != "67" && number < "224" {
				t.Errorf("%q becomes %q", text, line)
			}
		}
	})
}

// FuzzNames: no host name or search domain adds a line or a value to the config.
func FuzzNames(f *testing.F) {
	f.Add("web-0", "svc.cluster.local")
	f.Add("web\nport=53", "a,b")
	f.Add("web.a\n", "..")
	f.Fuzz(func(t *testing.T, hostname, search string) {
		p := Plan{NICs: []NIC{{Bridge: bridgeName(0), IPv4: Addressing{Address: netip.MustParsePrefix("10.0.0.2/24")}}}}
		clean := dhcpConfig(p)
		if err := p.setNames(Pod{Hostname: hostname, Searches: []string{search}}); err != nil {
			return
		}
		config := dhcpConfig(p)
		want := strings.Count(clean, "\n") + 2*len(p.Searches)
		if got := strings.Count(config, "\n"); got != want {
			t.Errorf("%d lines, want %d:\n%s", got, want, config)
		}
		commas := strings.Count(clean, ",") + 4*len(p.Searches) // in two lines, both tagged
		if p.Hostname != "" {
			commas++
		}
		if got := strings.Count(config, ","); got != commas {
			t.Errorf("%d commas, want %d:\n%s", got, commas, config)
		}
	})
}
