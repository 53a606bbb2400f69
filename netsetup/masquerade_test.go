package netsetup

import (
	"errors"
	"net/netip"
	"strings"
	"syscall"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func masqueraded(ns string, ports ...Port) Pod {
	return Pod{Netns: ns, Interfaces: []Interface{{Binding: Masquerade, Ports: ports}}}
}

func TestMasqueradedGuestHasAPrivateAddress(t *testing.T) {
	n := newNode(t)
	pod := n.addPod(t)
	before := state(t, pod)
	m := n.start(t, idA, masqueraded(pod))
	got := m.dhcp(t, "system")
	want := lease{
		address: netip.MustParsePrefix("10.0.2.2/24"), router: netip.MustParseAddr("10.0.2.1"),
		mtu: 1400, seconds: 1<<32 - 1,
	}
	if diff := cmp.Diff(want, got, compareAddrs); diff != "" {
		t.Errorf("lease (-want +got):\n%s", diff)
	}
	m.configure(t, got)

	// All of the pod's ports are the guest's.
	m.serve(t, "guest")
	for from, ns := range map[string]string{
		"node": hostNamespace, "another pod": n.addPod(t), "a sidecar": pod,
	} {
		if got := ask(t, ns, "10.88.1.2:80"); got != "guest" {
			t.Errorf("from %s the pod's address answers %q", from, got)
		}
	}
	if got := ask(t, pod, "10.0.2.2:80"); got != "guest" {
		t.Errorf("from a sidecar the guest's own address answers %q", got)
	}

	// It reaches others, as its pod.
	other := n.addPod(t)
	serveIn(t, other, "10.88.1.4:80", "other")
	if got := ask(t, m.ns, "10.88.1.4:80"); got != "other" {
		t.Errorf("another pod answers the guest %q", got)
	}
	for range 2 {
		n.undo(t, throughJSON(t, m.plan))
		same(t, "pod", before, state(t, pod))
	}
}

// TestReservedPort: a port that a plan reserves is the pod's, until it is freed. Connections of the guest go on.
func TestReservedPort(t *testing.T) {
	n := newNode(t)
	pod := n.addPod(t)
	on := masqueraded(pod)
	on.Interfaces[0].Reserved = 49152
	m := n.start(t, idA, on)
	m.configure(t, m.dhcp(t, "system"))
	serveIn(t, m.ns, ":49152", "guest")
	serveIn(t, pod, "10.88.1.2:49152", "pod")
	m.serve(t, "guest")
	if got := ask(t, hostNamespace, "10.88.1.2:49152"); got != "pod" {
		t.Errorf("the reserved port answers %q", got)
	}
	for range 2 {
		if err := n.setup.Free(t.Context(), m.plan); err != nil {
			t.Fatal(err)
		}
	}
	for _, port := range []string{"49152", "80"} {
		if got := ask(t, hostNamespace, "10.88.1.2:"+port); got != "guest" {
			t.Errorf("port %s answers %q", port, got)
		}
	}
}

func TestOtherPortsStayWithSidecars(t *testing.T) {
	n := newNode(t)
	pod := n.addPod(t)
	m := n.start(t, idA, masqueraded(pod, Port{"tcp", 70, 80}, Port{"udp", 80, 0}, Port{"tcp", 443, 0}))
	m.configure(t, m.dhcp(t, "system"))
	m.serve(t, "guest")
	serveIn(t, pod, "0.0.0.0:80", "sidecar") // not to be reached from outside
	serveIn(t, pod, "0.0.0.0:81", "sidecar")
	for target, want := range map[string]string{"10.88.1.2:80": "guest", "10.88.1.2:81": "sidecar"} {
		for _, ns := range []string{hostNamespace, pod} {
			if got := ask(t, ns, target); got != want {
				t.Errorf("%s answers %q, want %q", target, got, want)
			}
		}
	}
	if got := ask(t, pod, "127.0.0.1:80"); got != "sidecar" {
		t.Errorf("loopback answers %q", got)
	}
	// What sidecars offer to the world is none of the guest's business.
	for _, target := range []string{"10.88.1.2:81", "10.0.2.1:81"} {
		if conn, err := dial(t, m.ns, target); !errors.Is(err, syscall.ECONNREFUSED) {
			t.Errorf("from the guest %s: %v, %v", target, conn, err)
		}
	}
}

func TestPrivateNetworkOfOnesChoice(t *testing.T) {
	n := newNode(t)
	pod := n.addPod(t)
	m := n.start(t, idA, Pod{Netns: pod, Interfaces: []Interface{{
		Binding: Masquerade, IPv4: netip.MustParsePrefix("172.30.0.0/29"),
		MAC: []byte{2, 0, 0, 0, 0, 9},
	}}})
	got := m.dhcp(t, "system")
	if got.address != netip.MustParsePrefix("172.30.0.2/29") || got.router != netip.MustParseAddr("172.30.0.1") {
		t.Errorf("lease %+v", got)
	}
	for name, wanted := range map[string]Interface{
		"overlaps":                    {Binding: Masquerade, IPv4: netip.MustParsePrefix("10.88.0.0/16")},
		"one like":                    {Binding: Masquerade, IPv4: netip.MustParsePrefix("10.0.3.0/31")},
		"10.0.2.0":                    {Binding: Masquerade, IPv4: netip.MustParsePrefix("fd00::/120")},
		"need the binding masquerade": {Ports: []Port{{"tcp", 80, 0}}},
		"passt":                       {Binding: "passt"},
		"port icmp":                   {Binding: Masquerade, Ports: []Port{{"icmp", 1, 0}}},
		"port tcp 9-8":                {Binding: Masquerade, Ports: []Port{{"tcp", 9, 8}}},
	} {
		_, err := n.setup.Plan(t.Context(), idB, Pod{Netns: n.addPod(t), Interfaces: []Interface{wanted}})
		if err == nil || !strings.Contains(err.Error(), name) {
			t.Errorf("error %v, want one with %q", err, name)
		}
	}
}

func TestWhereTheGuestIsReached(t *testing.T) {
	n := newNode(t)
	pod := n.addPod(t)
	for binding, want := range map[Binding][2]string{
		Bridge:     {"10.88.1.2", "10.88.1.2"},
		Masquerade: {"10.0.2.2", "10.88.1.2"},
	} {
		p, err := n.setup.Plan(t.Context(), idA, Pod{Netns: pod, Interfaces: []Interface{{Binding: binding}}})
		if err != nil {
			t.Fatal(err)
		}
		inside, outside := p.GuestAddresses(), p.PodIPs()
		if len(inside) == 0 || len(outside) == 0 ||
			[2]string{inside[0].String(), outside[0].String()} != want {
			t.Errorf("%s: the guest is reached at %v and %v, want %v", binding, inside, outside, want)
		}
	}
}
