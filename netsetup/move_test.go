package netsetup

import (
	"net"
	"net/netip"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/nodevirt/nodevirt/test/wait"
)

// await prepares another pod for a guest that comes by migration.
func (n *node) await(t *testing.T, id string, pod Pod) (Plan, *os.File) {
	t.Helper()
	plan, err := n.setup.Plan(t.Context(), id, pod)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { n.undo(t, plan) })
	if err := n.setup.Apply(t.Context(), plan); err != nil {
		t.Fatal(err)
	}
	if _, err := n.setup.Serve(t.Context(), plan); err != nil {
		t.Fatal(err)
	}
	tap := openTap(t, plan.NICs[0].Tap)
	if err := n.setup.Connect(t.Context(), plan); err != nil {
		t.Fatal(err)
	}
	return plan, tap
}

// moveTo does what a migration does to a guest's network: another pod waits for the guest, which
// then sends and receives there, with all that its kernel knows.
func (n *node) moveTo(t *testing.T, m *testGuest, id string, pod Pod) {
	t.Helper()
	plan, tap := n.await(t, id, pod)
	early := make(chan net.Conn)
	go func() { // a client that does not wait for the guest
		conn, _ := dial(t, hostNamespace, netip.AddrPortFrom(plan.PodIPs()[0], 80).String())
		early <- conn
	}()
	m.plan = plan
	m.plugInto(tap)
	if conn := <-early; conn == nil {
		t.Error("a connection that began before the guest came fails")
	} else {
		conn.Close()
	}
}

// TestGuestKeepsItsRouter: a guest that moves to another pod has its router's address of each
// kind in its tables, and uses them at once.
func TestGuestKeepsItsRouter(t *testing.T) {
	n := newNode(t)
	first, second := n.addPod(t), n.addPod(t)
	m := n.start(t, idA, masqueraded(first))
	m.configure(t, m.dhcp(t, "system"))
	m.configure6(t, m.dhcp6(t, "system"))
	serveIn(t, m.ns, "[::]:80", "guest")
	serveIn(t, hostNamespace, "[::]:81", "node")
	for _, target := range []string{"10.88.1.1:81", "[fd00:88::1]:81"} {
		if got := ask(t, m.ns, target); got != "node" {
			t.Errorf("%s answers %q", target, got)
		}
	}
	router := m.router6(t)
	freezeNeighbors(t, m)
	n.moveTo(t, m, idB, masqueraded(second))
	for _, target := range []string{"10.88.1.1:81", "[fd00:88::1]:81"} {
		if got := ask(t, m.ns, target); got != "node" {
			t.Errorf("after the move %s answers %q", target, got)
		}
	}
	for _, target := range []string{"10.88.1.3:80", "[fd00:88::3]:80"} {
		if got := ask(t, hostNamespace, target); got != "guest" {
			t.Errorf("after the move %s answers %q", target, got)
		}
	}
	if got := linkLocal(m.plan.NICs[0].BridgeMAC); got != router {
		t.Errorf("the guest's router was %s, is %s", router, got)
	}
}

// freezeNeighbors makes the guest keep its neighbours' addresses without asking again.
func freezeNeighbors(t *testing.T, m *testGuest) {
	t.Helper()
	kept := 0
	inPod(t, m.ns, func(h *netlink.Handle) error {
		link, err := h.LinkByName(card)
		if err != nil {
			return err
		}
		all, err := h.NeighList(link.Attrs().Index, netlink.FAMILY_ALL)
		if err != nil {
			return err
		}
		for _, one := range all {
			if one.IP.IsMulticast() || len(one.HardwareAddr) == 0 || one.State == netlink.NUD_NOARP {
				continue
			}
			one.State = netlink.NUD_PERMANENT
			if err := h.NeighSet(&one); err != nil {
				return err
			}
			kept++
		}
		return nil
	})
	if kept < 2 {
		t.Fatalf("the guest knows %d neighbours, not its gateway and its router", kept)
	}
}

// TestSwitchesLearnTheNewPort: on a network that others share, a waiting pod is silent, and QEMU's
// announcement directs the guest's frames to it.
func TestSwitchesLearnTheNewPort(t *testing.T) {
	n := newNode(t)
	conf := map[string]any{"cniVersion": "0.4.0", "name": "net3", "type": "bridge", "bridge": "cni3"}
	t.Cleanup(func() { removeLink(t, "cni3") })
	var pods []string
	for _, id := range []string{"source", "target", "client"} {
		pod := n.addPod(t)
		runCNI(t, conf, "ADD", id, pod, "net3")
		t.Cleanup(func() { runCNI(t, conf, "DEL", id, pod, "net3") })
		pods = append(pods, pod)
	}
	own := MAC{2, 0, 0, 0, 0, 0x42}
	on := func(pod string) Pod {
		return Pod{Netns: pod, Interfaces: []Interface{{Name: "net3", MAC: net.HardwareAddr(own)}}}
	}
	m := n.start(t, idA, on(pods[0]))
	run(t, m.ns, "ip", "addr", "add", "10.77.3.1/24", "dev", card)
	run(t, pods[2], "ip", "addr", "add", "10.77.3.2/24", "dev", "net3")
	serveIn(t, m.ns, "10.77.3.1:80", "guest")
	if got := ask(t, pods[2], "10.77.3.1:80"); got != "guest" {
		t.Fatalf("the guest answers %q", got)
	}
	before := portOf(t, "cni3", own)
	plan, tap := n.await(t, idB, on(pods[1]))
	if got := portOf(t, "cni3", own); got != before {
		t.Errorf("the guest's port was %d, and is %d before it moved", before, got)
	}
	m.plan = plan
	m.plugInto(tap)
	header := make([]byte, 10) // of virtio
	if _, err := tap.Write(append(header, newVillain(plan.NICs[0]).Honest()["RARP of a migration"]...)); err != nil {
		t.Fatal(err)
	}
	// Bridges pass frames on in their own time.
	wait.Until(t, "the guest's port is another than before it moved", func() bool { return portOf(t, "cni3", own) != before })
	if got := ask(t, pods[2], "10.77.3.1:80"); got != "guest" {
		t.Errorf("after the move the guest answers %q", got)
	}
}

// portOf returns the port of a bridge of the node to which it sends frames for an address.
func portOf(t *testing.T, bridge string, mac MAC) (port int) {
	t.Helper()
	inPod(t, hostNamespace, func(h *netlink.Handle) error {
		link, err := h.LinkByName(bridge)
		if err != nil {
			return err
		}
		all, err := h.NeighList(0, unix.AF_BRIDGE)
		for _, one := range all {
			if one.MasterIndex == link.Attrs().Index && mac.equal(one.HardwareAddr) {
				port = one.LinkIndex
			}
		}
		return err
	})
	return port
}

// On a network that others share, the router of a bridged guest is its own, in each pod.
func TestRouterOfABridgedGuest(t *testing.T) {
	n := newNode(t)
	n.setup.anyMAC = true
	router := func(id string, mac net.HardwareAddr) string {
		p, err := n.setup.Plan(t.Context(), id, withMAC(n.addPod(t), mac))
		if err != nil {
			t.Fatal(err)
		}
		return p.NICs[0].BridgeMAC.String()
	}
	own, other := net.HardwareAddr{2, 0, 0, 0, 0, 1}, net.HardwareAddr{2, 0, 0, 0, 0, 2}
	if a, b := router(idA, own), router(idB, own); a != b {
		t.Errorf("a guest's router is %s in one pod and %s in another", a, b)
	}
	if a, b := router(idA, own), router(idA, other); a == b {
		t.Errorf("two guests have the router %s", a)
	}
}

// A former version marked its bridges by their addresses alone.
func TestBridgeOfAFormerVersion(t *testing.T) {
	n := newNode(t)
	pod := n.addPod(t)
	before := state(t, pod)
	plan, other := n.planOf(t, idA, masqueraded(pod)), n.planOf(t, idB, masqueraded(pod))
	plan.NICs[0].BridgeMAC = plan.firstMAC(plan.NICs[0])
	if err := n.setup.Apply(t.Context(), plan); err != nil {
		t.Fatal(err)
	}
	run(t, pod, "ip", "link", "set", "nvbr0", "alias", "")
	n.undo(t, other)
	if got := run(t, pod, "ip", "link", "show", "nvbr0"); strings.Contains(got, "alias") || !strings.Contains(got, plan.NICs[0].BridgeMAC.String()) {
		t.Fatalf("another VM's undo has left %s", got)
	}
	powerOn(t, plan)
	if err := n.setup.Connect(t.Context(), plan); err != nil {
		t.Error(err)
	}
	n.undo(t, plan)
	same(t, "pod", before, state(t, pod))
}

// A crash can come between the requests that create the bridge and mark it.
func TestBridgeThatIsHalfMarked(t *testing.T) {
	n := newNode(t)
	pod := n.addPod(t)
	before := state(t, pod)
	for _, alias := range []string{"", idA} {
		plan := n.planOf(t, idA, masqueraded(pod))
		first := plan.firstMAC(plan.NICs[0])
		run(t, pod, "ip", "link", "add", "nvbr0", "address", first.String(), "type", "bridge")
		run(t, pod, "ip", "link", "set", "nvbr0", "alias", alias)
		if err := n.setup.Apply(t.Context(), plan); err != nil {
			t.Fatal(err)
		}
		if got := linkMAC(t, pod, "nvbr0"); !gatewayMAC.equal(got) {
			t.Errorf("the gateway has the address %s, want %s", got, gatewayMAC)
		}
		n.undo(t, plan)
		same(t, "pod", before, state(t, pod))
	}
}

// TestSilentWithoutTheGuest: on a network whose plug-in gives each pod the guest's MAC and IP addresses, a pod without
// the guest sends nothing: neither the one that waits, nor one whose guest did not come, nor one whose guest has left.
// The pod with the guest announces it.
func TestSilentWithoutTheGuest(t *testing.T) {
	n := newNode(t)
	own := MAC{2, 0, 0, 0, 0, 0x43}
	conf := map[string]any{
		"cniVersion": "0.4.0", "name": "net5", "type": "bridge", "bridge": "cni5", "runtimeConfig": map[string]any{"mac": own.String()},
		"ipam": map[string]any{"type": "static", "addresses": []map[string]any{{"address": "10.77.5.1/24"}, {"address": "fd00:77:5::1/64"}}},
	}
	t.Cleanup(func() { removeLink(t, "cni5") })
	pod := func(id string) (string, Pod) {
		netns := n.addPod(t)
		return netns, Pod{Netns: netns, Interfaces: []Interface{{Name: "net5", MAC: net.HardwareAddr(own)}}, Waits: id != "source"}
	}
	add := func(id, netns string) {
		runCNI(t, conf, "ADD", id, netns, "net5")
		t.Cleanup(func() { runCNI(t, conf, "DEL", id, netns, "net5") })
	}
	source, onSource := pod("source")
	add("source", source)
	m := n.start(t, idA, onSource)
	sourcePlan := m.plan
	announce := func(p Plan) {
		t.Helper()
		if err := n.setup.Announce(t.Context(), p); err != nil {
			t.Fatal(err)
		}
	}
	announce(sourcePlan)
	var at int
	wait.Until(t, "the switch knows the guest", func() bool { at = portOf(t, "cni5", own); return at != 0 })
	router := sourcePlan.NICs[0].BridgeMAC
	if got := portOf(t, "cni5", router); got != at {
		t.Errorf("the guest is at port %d, and its router at %d", at, got)
	}

	// The plug-in announces an address by frames that no filter sees; the next announcement of the guest follows.
	quiet := func(when string, do func()) {
		t.Helper()
		announce(sourcePlan)
		do()
		time.Sleep(3 * time.Second) // the kernel looks for duplicates of its addresses, and reports multicast groups
		for what, mac := range map[string]MAC{"guest": own, "router": router} {
			if got := portOf(t, "cni5", mac); got != at {
				t.Errorf("%s: the %s is at port %d, and was at %d", when, what, got, at)
			}
		}
	}
	targetPod := func(id string) (string, Pod) {
		netns, on := pod(id)
		if err := n.setup.Silence(t.Context(), netns, "net5"); err != nil {
			t.Fatal(err)
		}
		add(id, netns)
		return netns, on
	}
	target, onTarget := targetPod("first")
	quiet("beside a pod that is silent", func() {
		run(t, target, "ip", "link", "set", "net5", "down")
		run(t, target, "ip", "link", "set", "net5", "up")
	})
	var plan Plan
	var tap *os.File
	quiet("beside a pod that waits", func() { plan, tap = n.await(t, idB, onTarget) })
	quiet("beside a pod whose guest did not come", func() { n.undo(t, plan) })

	_, onTarget = targetPod("second")
	plan, tap = n.await(t, strings.Replace(idB, "b0", "c0", 1), onTarget)
	if err := n.setup.Own(t.Context(), plan); err != nil {
		t.Fatal(err)
	}
	m.plan = plan
	m.plugInto(tap)
	announce(plan)
	wait.Until(t, "the switch knows the guest's new port", func() bool { return portOf(t, "cni5", own) != at })
	wait.Until(t, "the switch knows the new port of the guest's router", func() bool { return portOf(t, "cni5", router) == portOf(t, "cni5", own) })
	at = portOf(t, "cni5", own)
	sourcePlan, plan = plan, sourcePlan
	quiet("beside a pod whose guest has left", func() {
		if err := n.setup.Leave(t.Context(), plan); err != nil {
			t.Fatal(err)
		}
		n.undo(t, plan)
	})
	if got := run(t, source, "ip", "addr", "show", "net5"); !strings.Contains(got, own.String()) {
		t.Errorf("the source's pod has %s", got)
	}
}
