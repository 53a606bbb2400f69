package netsetup

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// openPlugged opens the one device of a plan that a plug-in made, as the shim does for QEMU.
func openPlugged(t *testing.T, plan Plan) *os.File {
	t.Helper()
	devices, err := New(Options{}).OpenPlugged(t.Context(), plan)
	if err != nil {
		t.Fatal(err)
	}
	if len(devices) != 1 || len(devices[0].Files) != 1 {
		t.Fatalf("devices %+v", devices)
	}
	defer devices[0].Close()
	fd, err := unix.FcntlInt(devices[0].Files[0].Fd(), unix.F_DUPFD_CLOEXEC, 0)
	if err == nil {
		err = errors.Join(unix.IoctlSetInt(fd, unix.TUNSETOFFLOAD, unix.TUN_F_CSUM), unix.SetNonblock(fd, true))
	}
	if err != nil {
		t.Fatal(err)
	}
	f := os.NewFile(uintptr(fd), "device")
	t.Cleanup(func() { f.Close() })
	return f
}

// heard reports whether a packet comes.
func heard(t *testing.T, conn net.PacketConn) bool {
	t.Helper()
	if err := conn.SetReadDeadline(time.Now().Add(20 * time.Second)); err != nil {
		t.Fatal(err)
	}
	_, _, err := conn.ReadFrom(make([]byte, 1500))
	return err == nil
}

// redirect makes the tap tap0 in a pod and joins it with eth0 by traffic control, as network plug-ins do for
// micro VMs: a tap that leaves its namespace loses that.
func redirect(t *testing.T, pod string) {
	t.Helper()
	run(t, pod, "sh", "-ec", `
		ip tuntap add tap0 mode tap
		ip link set tap0 mtu 1400 up
		for pair in "eth0 tap0" "tap0 eth0"; do
			set -- $pair
			tc qdisc add dev $1 ingress
			tc filter add dev $1 parent ffff: protocol all u32 match u32 0 0 action mirred egress redirect dev $2
		done`)
}

// static is the configuration of a guest that no DHCP server serves.
func static(address string, mtu int) lease {
	return lease{address: netip.MustParsePrefix(address), mtu: mtu}
}

// TestPluggedTap: the guest is on the tap that a plug-in made, whose connections stay.
func TestPluggedTap(t *testing.T) {
	n := newNode(t)
	pod := n.addPod(t)
	redirect(t, pod)
	before, rules := state(t, pod), run(t, pod, "tc", "filter", "show", "dev", "tap0", "ingress")
	m := n.start(t, idA, Pod{Netns: pod, Interfaces: []Interface{{Card: "default", Binding: Tap}}})
	nic := m.plan.NICs[0]
	if nic.Device != "tap0" || nic.MTU != 1400 || !nic.GuestMAC.equal(net.HardwareAddr(nic.OriginalMAC)) || nic.Bridge != "" || m.plan.Served() {
		t.Errorf("planned %+v", nic)
	}
	if got := fmt.Sprint(m.plan.PodIPs()); !strings.Contains(got, "10.88.1.2") {
		t.Errorf("the pod's addresses are %s", got)
	}
	m.configure(t, static("10.88.1.2/24", 1400))
	if got := ask(t, hostNamespace, serveIn(t, m.ns, "10.88.1.2:80", "guest")); got != "guest" {
		t.Errorf("from the node, the guest answers %q", got)
	}
	counters, err := n.setup.Counters(m.plan)
	if err != nil || counters[0].TxPackets == 0 || counters[0].RxPackets == 0 {
		t.Errorf("counters %+v, %v", counters, err)
	}
	if _, err := n.setup.OpenPlugged(t.Context(), m.plan); !errors.Is(err, ErrInUse) {
		t.Errorf("a second VM gets the tap: %v", err)
	}
	if links := nodeLinks(t); strings.Contains(links, nic.Tap) {
		t.Errorf("the node still has %s:\n%s", nic.Tap, links)
	}
	n.undo(t, m.plan)
	_ = m.card.Close()
	if after := run(t, pod, "tc", "filter", "show", "dev", "tap0", "ingress"); !strings.Contains(after, "mirred") || strings.Count(after, "u32") != strings.Count(rules, "u32") {
		t.Errorf("the plug-in's rules were\n%s\nand are\n%s", rules, after)
	}
	if after := state(t, pod); !strings.Contains(after, "tap0") || !strings.Contains(before, "10.88.1.2") || !strings.Contains(after, "10.88.1.2") {
		t.Errorf("the pod was\n%s\nand is\n%s", before, after)
	}
}

// TestPluggedQueues: a tap with several queues is open once for each.
func TestPluggedQueues(t *testing.T) {
	n := newNode(t)
	pod := n.addPod(t)
	run(t, pod, "ip", "tuntap", "add", "tap0", "mode", "tap", "multi_queue")
	for _, queues := range []int{1, 3} {
		plan, err := n.setup.Plan(t.Context(), idA, Pod{Netns: pod, Interfaces: []Interface{{Binding: Tap, Queues: queues}}})
		if err != nil {
			t.Fatal(err)
		}
		devices, err := n.setup.OpenPlugged(t.Context(), plan)
		if err != nil || len(devices[0].Files) != queues {
			t.Fatalf("%d queues: %+v, %v", queues, devices, err)
		}
		devices[0].Close()
	}
}

// TestPluggedMacvtap: the guest is on a macvtap, whose device is that of the pod's namespace.
func TestPluggedMacvtap(t *testing.T) {
	n := newNode(t)
	lan, pod := newNamespace(t), newNamespace(t)
	run(t, hostNamespace, "ip", "link", "add", "lan0", "type", "veth", "peer", "name", "lan0", "netns", lan)
	t.Cleanup(func() { removeLink(t, "lan0") })
	run(t, hostNamespace, "ip", "link", "set", "lan0", "up")
	run(t, lan, "sh", "-c", "ip link set lan0 up; ip addr add 10.77.2.200/24 dev lan0")
	const name = "pod0123456789a"
	run(t, hostNamespace, "ip", "link", "add", "link", "lan0", "name", "made", "address", "02:00:00:00:00:42", "type", "macvtap", "mode", "bridge")
	inPod(t, hostNamespace, func(h *netlink.Handle) error {
		link, err := h.LinkByName("made")
		if err != nil {
			return err
		}
		to, err := openNamespace(pod)
		if err != nil {
			return err
		}
		defer to.Close()
		return h.LinkSetNsFd(link, int(to))
	})
	run(t, pod, "sh", "-ec", "ip link set made name "+name+"; ip link set "+name+" up")
	m := n.start(t, idA, Pod{Netns: pod, Interfaces: []Interface{{Card: "lan", Name: name, Binding: Tap}}})
	if nic := m.plan.NICs[0]; nic.Device != name || nic.GuestMAC.String() != "02:00:00:00:00:42" {
		t.Errorf("planned %+v", nic)
	}
	m.configure(t, static("10.77.2.1/24", 1500))
	if got := ask(t, lan, serveIn(t, m.ns, "10.77.2.1:80", "guest")); got != "guest" {
		t.Errorf("the guest answers %q", got)
	}
	counters, err := n.setup.Counters(m.plan)
	if err != nil || counters[0].TxPackets == 0 || counters[0].RxPackets == 0 {
		t.Errorf("counters %+v, %v", counters, err)
	}
	left, err := os.ReadDir("/dev")
	for _, e := range left {
		if strings.HasPrefix(e.Name(), "nodevirt-macvtap-") {
			t.Errorf("/dev/%s is left", e.Name())
		}
	}
	if err != nil {
		t.Error(err)
	}
}

// TestPluggedRefuses: the error names what the plug-in should have made.
func TestPluggedRefuses(t *testing.T) {
	n := newNode(t)
	pod := n.addPod(t)
	for want, one := range map[string]struct {
		script string
		card   Interface
	}{
		"interface eth0 is a veth":            {"", Interface{Card: "default", Binding: Tap}},
		"interface tap0 is a tuntap":          {"ip tuntap add tap0 mode tun", Interface{Binding: Tap}},
		"tap tap0 has one queue":              {"ip tuntap add tap0 mode tap", Interface{Binding: Tap, Queues: 2}},
		"no interface pod0123456789a: check":  {"", Interface{Name: "pod0123456789a", Binding: Tap}},
		"ports, private networks and DHCP op": {"", Interface{Binding: Tap, Ports: []Port{{"tcp", 80, 0}}}},
	} {
		if one.script != "" {
			run(t, pod, "sh", "-ec", one.script)
		}
		_, err := n.setup.Plan(t.Context(), idA, Pod{Netns: pod, Interfaces: []Interface{one.card}})
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v; want %s", err, want)
		}
		if one.script != "" {
			run(t, pod, "ip", "link", "del", "tap0")
		}
	}
}

// TestManagedTap: the interface is a port of the guest's bridge, and the network's own DHCP server serves the guest.
func TestManagedTap(t *testing.T) {
	n := newNode(t)
	pod := n.addPod(t)
	before := state(t, pod)
	m := n.start(t, idA, Pod{Netns: pod, Interfaces: []Interface{{Card: "default", Binding: ManagedTap}}})
	if m.plan.Served() || len(m.plan.GuestAddresses()) > 0 {
		t.Errorf("planned %+v", m.plan)
	}
	if got := fmt.Sprint(m.plan.PodIPs()); !strings.Contains(got, "10.88.1.2") {
		t.Errorf("the pod's addresses are %s", got)
	}
	requests := listenOn(t, hostNamespace, n.bridge, "0.0.0.0:67")
	conn := m.listen(t, "0.0.0.0:68")
	broadcast(t, conn, 67)
	if !heard(t, requests) {
		t.Error("the network's DHCP server does not hear the guest")
	}
	m.configure(t, static("10.88.1.77/24", 1400)) // not the address that CNI gave the pod
	if got := ask(t, hostNamespace, serveIn(t, m.ns, "10.88.1.77:80", "guest")); got != "guest" {
		t.Errorf("from the node, the guest answers %q", got)
	}
	n.undo(t, m.plan)
	same(t, "pod", before, state(t, pod))
}

// TestCardsBesidePlugged: what a VM's cards share is made and undone for those with a bridge.
func TestCardsBesidePlugged(t *testing.T) {
	n := newNode(t)
	pod := n.addPod(t)
	run(t, pod, "sh", "-ec", "ip tuntap add pod0123456789a mode tap; ip link set pod0123456789a up")
	before := state(t, pod)
	cards := n.startCards(t, idA, Pod{Netns: pod, Interfaces: []Interface{
		{Card: "lan", Name: "pod0123456789a", Binding: Tap}, {Card: "default", Binding: Masquerade},
	}})
	guest := cards[1]
	guest.configure(t, guest.dhcp(t, "system"))
	guest.serve(t, "guest")
	if got := ask(t, hostNamespace, "10.88.1.2:80"); got != "guest" {
		t.Errorf("from the node, the guest answers %q", got)
	}
	plan := guest.plan
	plan.NICs = append([]NIC{cards[0].plan.NICs[0]}, plan.NICs...)
	n.undo(t, plan)
	_ = cards[0].card.Close()
	for line := range strings.SplitSeq(before, "\n") {
		if after := state(t, pod); strings.Contains(line, "eth0") && !strings.Contains(after, line) {
			t.Errorf("the pod had %s, and is\n%s", line, after)
		}
	}
}
