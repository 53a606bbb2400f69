package netsetup

import (
	"errors"
	"net"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/vishvananda/netlink"
)

func TestPlan(t *testing.T) {
	n := newNode(t)
	pod := n.addPod(t)
	own := linkMAC(t, pod, "eth0")
	got, err := n.setup.Plan(t.Context(), idA, Pod{Netns: pod, Hostname: "web"})
	if err != nil {
		t.Fatal(err)
	}
	if len(got.NICs[0].Original.Addresses) < 2 || len(got.NICs[0].Original.Routes) < 4 {
		t.Errorf("snapshot %+v has no addresses or routes", got.NICs[0].Original)
	}
	want := Plan{
		ID: idA, Netns: pod, Hostname: "web",
		NICs: []NIC{{
			Binding: Bridge, Interface: "eth0", Bridge: "nvbr0", Tap: "nva1b2c3d4e5f",
			GuestMAC: MAC(own), OriginalMAC: MAC(own),
			PodMAC: localMAC(idA, "interface eth0"), BridgeMAC: localMAC(own.String(), "router"),
			MTU: 1400,
			IPv4: Addressing{
				Pod:     netip.MustParsePrefix("169.254.75.10/32"),
				Address: netip.MustParsePrefix("10.88.1.2/24"),
				Gateway: netip.MustParseAddr("10.88.1.1"),
				Routes:  []Route{{netip.MustParsePrefix("192.0.2.0/24"), netip.MustParseAddr("10.88.1.7")}},
			},
			IPv6: Addressing{
				Pod:     netip.MustParsePrefix("fd6e:6f64::1/64"),
				Address: netip.MustParsePrefix("fd00:88::2/64"),
				Gateway: netip.MustParseAddr("fd00:88::1"),
			},
			Original: got.NICs[0].Original,
		}},
		Sysctls: got.Sysctls,
	}
	if diff := cmp.Diff(want, got, compareAddrs); diff != "" {
		t.Errorf("plan (-want +got):\n%s", diff)
	}

	other := net.HardwareAddr{0x02, 0, 0, 0, 0, 1}
	n.setup.anyMAC = true
	got, err = n.setup.Plan(t.Context(), idA, Pod{Netns: pod, Interfaces: []Interface{{MAC: other}}})
	if err != nil {
		t.Fatal(err)
	}
	if !got.NICs[0].GuestMAC.equal(other) || !got.NICs[0].PodMAC.equal(own) {
		t.Errorf("guest with its own address: guest %s, pod %s", got.NICs[0].GuestMAC, got.NICs[0].PodMAC)
	}
}

// TestMACOnThePodNetwork: a bridged guest has the pod's own MAC address there, unless the node's
// administrator permits others. Behind masquerade and on secondary networks the choice is free.
func TestMACOnThePodNetwork(t *testing.T) {
	n := newNode(t)
	pod := n.addPod(t)
	run(t, pod, "ip", "link", "add", "net1", "type", "veth", "peer", "name", "peer1")
	run(t, pod, "sh", "-c", "ip link set net1 up; ip link set peer1 up")
	own, other := linkMAC(t, pod, "eth0"), net.HardwareAddr{0x02, 0, 0, 0, 0, 1}
	for name, c := range map[string]struct {
		cards   []Interface
		permits bool
		refused bool
	}{
		"none":       {cards: []Interface{{}}},
		"own":        {cards: []Interface{{MAC: own}}},
		"another":    {cards: []Interface{{Name: "net1"}, {MAC: other}}, refused: true},
		"permitted":  {cards: []Interface{{MAC: other}}, permits: true},
		"masquerade": {cards: []Interface{{MAC: other, Binding: Masquerade}}},
		"secondary":  {cards: []Interface{{Name: "net1", MAC: other}}},
	} {
		n.setup.anyMAC = c.permits
		_, err := n.setup.Plan(t.Context(), idA, Pod{Netns: pod, Interfaces: c.cards})
		if refusal, ok := errors.AsType[*MACError](err); ok != c.refused || !ok && err != nil {
			t.Errorf("%s: %v", name, err)
		} else if ok && (refusal.Card != 1 || !refusal.Own.equal(own) || !refusal.Wanted.equal(other) || !errors.Is(err, ErrUnsuited)) {
			t.Errorf("%s: %+v", name, refusal)
		}
	}
}

func linkMAC(t *testing.T, ns, name string) (mac net.HardwareAddr) {
	t.Helper()
	inPod(t, ns, func(h *netlink.Handle) error {
		link, err := h.LinkByName(name)
		if err == nil {
			mac = link.Attrs().HardwareAddr
		}
		return err
	})
	return mac
}

func TestPlanRefuses(t *testing.T) {
	n := newNode(t)
	pod, bare := n.addPod(t), newNamespace(t)
	flushed := n.addPod(t)
	inPod(t, flushed, func(h *netlink.Handle) error {
		link, err := h.LinkByName("eth0")
		if err != nil {
			return err
		}
		return removeAddresses(h, link)
	})
	long := strings.Repeat("a", 64)
	for name, test := range map[string]struct {
		id   string
		pod  Pod
		want string
		is   error
	}{
		"host network":       {pod: Pod{}, want: "hostNetwork"},
		"node's namespace":   {pod: Pod{Netns: "/proc/self/ns/net"}, want: "hostNetwork"},
		"relative path":      {pod: Pod{Netns: "net"}, want: `"net"`},
		"absent namespace":   {pod: Pod{Netns: "/nonexistent"}, want: "/nonexistent"},
		"no namespace":       {pod: Pod{Netns: "/etc/passwd"}, want: "gone", is: errGone},
		"no interface":       {pod: Pod{Netns: bare}, want: "eth0", is: ErrNoAddress},
		"no second network":  {pod: on(pod, "eth0", "net1"), want: "Multus", is: ErrUnsuited},
		"no address":         {pod: Pod{Netns: flushed}, want: "eth0", is: ErrNoAddress},
		"loopback":           {pod: on(pod, "lo"), want: `"lo"`},
		"path as interface":  {pod: on(pod, "../x"), want: `"../x"`},
		"interface twice":    {pod: on(pod, "eth0", "eth0"), want: "twice"},
		"nine interfaces":    {pod: Pod{Netns: pod, Interfaces: make([]Interface, 9)}, want: "9"},
		"long interface":     {pod: on(pod, long), want: long},
		"line in host name":  {pod: Pod{Netns: pod, Hostname: "a\nport=53"}, want: `"a\nport=53"`},
		"comma in host name": {pod: Pod{Netns: pod, Hostname: "a,b"}, want: `"a,b"`},
		"long host name":     {pod: Pod{Netns: pod, Hostname: long}, want: long},
		"line in search":     {pod: Pod{Netns: pod, Searches: []string{"a\nb"}}, want: `"a\nb"`},
		"comma in search":    {pod: Pod{Netns: pod, Searches: []string{"a,b"}}, want: `"a,b"`},
		"empty label":        {pod: Pod{Netns: pod, Searches: []string{"a..b"}}, want: `"a..b"`},
		"line in option":     {pod: with(pod, DHCPOptions{BootFile: "a\nport=53"}), want: `"a\nport=53"`},
		"long option":        {pod: with(pod, DHCPOptions{TFTPServer: strings.Repeat("a", 256)}), want: "option 66"},
		"option of DHCP":     {pod: with(pod, DHCPOptions{Private: map[uint8]string{6: "x"}}), want: "option 6 "},
		"NTP server of IPv6": {pod: with(pod, DHCPOptions{NTPServers: addrs("fd00::1")}), want: "fd00::1"},
		"17 NTP servers":     {pod: with(pod, DHCPOptions{NTPServers: slices.Repeat(addrs("192.0.2.1"), 17)}), want: "17"},
		"multicast MAC": {pod: withMAC(pod, net.HardwareAddr{1, 0, 0, 0, 0, 0}),
			want: "01:00:00:00:00:00"},
		"the gateway's MAC": {pod: Pod{Netns: pod, Interfaces: []Interface{{Binding: Masquerade, MAC: net.HardwareAddr(gatewayMAC)}}},
			want: "gateway"},
		"no MAC":    {pod: withMAC(pod, make(net.HardwareAddr, 6)), want: "unicast"},
		"short id":  {id: "a1b2", pod: Pod{Netns: pod}, want: `"a1b2"`},
		"id with /": {id: "../../../../etc", pod: Pod{Netns: pod}, want: "hex"},
	} {
		t.Run(name, func(t *testing.T) {
			if test.id == "" {
				test.id = idA
			}
			_, err := n.setup.Plan(t.Context(), test.id, test.pod)
			if err == nil || !strings.Contains(err.Error(), test.want) {
				t.Errorf("error %v, want one with %q", err, test.want)
			}
			if test.is != nil && !errors.Is(err, test.is) {
				t.Errorf("error %v, want %v", err, test.is)
			}
		})
	}
}

func on(netns string, interfaces ...string) Pod {
	pod := Pod{Netns: netns}
	for _, name := range interfaces {
		pod.Interfaces = append(pod.Interfaces, Interface{Name: name})
	}
	return pod
}

func with(netns string, options DHCPOptions) Pod {
	return Pod{Netns: netns, Interfaces: []Interface{{DHCP: options}}}
}

func withMAC(netns string, mac net.HardwareAddr) Pod {
	return Pod{Netns: netns, Interfaces: []Interface{{MAC: mac}}}
}

// An empty Plan, as a record half written would be, must not lead Undo anywhere.
func TestUndoRefusesEmptyPlan(t *testing.T) {
	n := newNode(t)
	if err := n.setup.Undo(t.Context(), Plan{}); err == nil {
		t.Error("Undo of an empty Plan succeeds")
	}
	if _, err := n.setup.Serve(t.Context(), Plan{}); err == nil {
		t.Error("Serve of an empty Plan succeeds")
	}
	n.noFiles(t)
}
