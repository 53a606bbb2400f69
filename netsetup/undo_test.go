package netsetup

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

func TestUndoRestoresThePod(t *testing.T) {
	n := newNode(t)
	pod := n.addPod(t)
	podBefore, nodeBefore := state(t, pod), state(t, hostNamespace)
	for range 2 { // the second VM of a pod finds what the first one found
		m := n.start(t, idA, Pod{Netns: pod})
		pid, err := n.setup.server(m.plan).Find()
		if err != nil || pid == 0 {
			t.Fatalf("dnsmasq: pid %d, %v", pid, err)
		}
		if state(t, pod) == podBefore {
			t.Fatal("a start left no trace in the pod")
		}
		m.plan = throughJSON(t, m.plan)
		for range 2 {
			n.undo(t, m.plan)
			same(t, "pod", podBefore, state(t, pod))
			same(t, "node", nodeBefore, state(t, hostNamespace))
			n.noFiles(t)
		}
		if n.serves(pid) {
			t.Error("dnsmasq runs on")
		}
	}
}

func TestUndoFromEachPoint(t *testing.T) {
	for _, binding := range []Binding{Bridge, Masquerade} {
		t.Run(string(binding), func(t *testing.T) { undoFromEachPoint(t, binding) })
	}
}

func undoFromEachPoint(t *testing.T, binding Binding) {
	t.Helper()
	n := newNode(t)
	pod := n.addPod(t)
	podBefore, nodeBefore := state(t, pod), state(t, hostNamespace)
	plan := n.planOf(t, idA, Pod{Netns: pod, Interfaces: []Interface{{Binding: binding}}})
	same(t, "planned pod", podBefore, state(t, pod))
	steps := n.setup.steps()
	steps = append(steps,
		step{name: "serve", do: func(ctx context.Context, p Plan) error {
			_, err := n.setup.Serve(ctx, p)
			return err
		}},
		step{name: "connect", do: n.setup.Connect})
	for last := range len(steps) + 1 {
		done := "nothing"
		for _, step := range steps[:last] {
			done = step.name
			if err := step.do(t.Context(), plan); err != nil {
				t.Fatalf("%s: %v", step.name, err)
			}
		}
		n.undo(t, plan)
		same(t, "pod after "+done, podBefore, state(t, pod))
		same(t, "node after "+done, nodeBefore, state(t, hostNamespace))
		n.noFiles(t)
	}
}

// An Undo that was cut off between two of its steps is repeated from the start.
func TestUndoAfterHalfAnUndo(t *testing.T) {
	for _, binding := range []Binding{Bridge, Masquerade} {
		t.Run(string(binding), func(t *testing.T) { undoAfterHalfAnUndo(t, binding) })
	}
}

func undoAfterHalfAnUndo(t *testing.T, binding Binding) {
	t.Helper()
	n := newNode(t)
	pod := n.addPod(t)
	before := state(t, pod)
	plan := n.planOf(t, idA, Pod{Netns: pod, Interfaces: []Interface{{Binding: binding}}})
	steps := n.setup.steps()
	for first := range steps {
		if err := n.setup.Apply(t.Context(), plan); err != nil {
			t.Fatal(err)
		}
		for _, step := range slices.Backward(steps[first:]) {
			if err := step.undo(t.Context(), plan); err != nil {
				t.Fatalf("%s: %v", step.name, err)
			}
		}
		n.undo(t, plan)
		same(t, "pod after undo of "+steps[first].name, before, state(t, pod))
	}
}

func TestUndoWithoutNamespace(t *testing.T) {
	n := newNode(t)
	pod := n.addPod(t)
	nodeBefore := nodeLinks(t)
	for _, connect := range []bool{true, false} {
		ns := newNamespace(t)
		n.cni(t, "ADD", fmt.Sprint("gone", connect), ns)
		plan := n.plan(t, idA, ns)
		if err := n.setup.Apply(t.Context(), plan); err != nil {
			t.Fatal(err)
		}
		pid, err := n.setup.Serve(t.Context(), plan)
		if err != nil {
			t.Fatal(err)
		}
		if connect {
			if err := n.setup.Connect(t.Context(), plan); err != nil {
				t.Fatal(err)
			}
		}
		n.cni(t, "DEL", fmt.Sprint("gone", connect), ns)
		closeNamespace(t, ns)
		if !connect { // containerd removes the file too
			if err := os.Remove(ns); err != nil {
				t.Fatal(err)
			}
		}
		n.undo(t, plan)
		n.undo(t, plan)
		if n.serves(pid) {
			t.Error("dnsmasq runs on")
		}
		same(t, "links of node", nodeBefore, nodeLinks(t))
		n.noFiles(t)
	}
	if got := state(t, pod); !strings.Contains(got, "10.88.1.2/24") {
		t.Errorf("another pod has suffered:\n%s", got)
	}
}

func TestApplyMayBeRepeated(t *testing.T) {
	n := newNode(t)
	pod := n.addPod(t)
	before := state(t, pod)
	m := n.start(t, idA, Pod{Netns: pod})
	started, node := state(t, pod), nodeLinks(t)
	if err := n.setup.Apply(t.Context(), m.plan); err != nil {
		t.Fatal(err)
	}
	if err := n.setup.Connect(t.Context(), m.plan); err != nil {
		t.Fatal(err)
	}
	same(t, "pod after a second Apply", started, state(t, pod))
	same(t, "links of node", node, nodeLinks(t))
	m.configure(t, m.dhcp(t, "system"))
	if got := ask(t, hostNamespace, m.serve(t, "hello")); got != "hello" {
		t.Errorf("after a second Apply the guest answers %q", got)
	}
	n.undo(t, m.plan)
	same(t, "pod", before, state(t, pod))
}

func TestOneMachineAPod(t *testing.T) {
	n := newNode(t)
	pod := n.addPod(t)
	before := state(t, pod)
	late := n.plan(t, idB, pod)
	first := n.start(t, idA, Pod{Netns: pod})
	running := state(t, pod)
	if _, err := n.setup.Plan(t.Context(), idB, Pod{Netns: pod}); !errors.Is(err, ErrInUse) {
		t.Errorf("Plan for a second VM: %v", err)
	}
	if err := n.setup.Apply(t.Context(), late); !errors.Is(err, ErrInUse) {
		t.Errorf("Apply for a second VM: %v", err)
	}
	same(t, "pod after a refused VM", running, state(t, pod))

	// The first VM's record, used again when the second one runs, does no harm.
	n.undo(t, first.plan)
	n.start(t, idB, Pod{Netns: pod})
	running = state(t, pod)
	n.undo(t, first.plan)
	same(t, "pod after an old Undo", running, state(t, pod))
	n.undo(t, late)
	same(t, "pod", before, state(t, pod))
}

func TestApplyUndoesItself(t *testing.T) {
	n := newNode(t)
	pod := n.addPod(t)
	before := state(t, pod)
	plan := n.plan(t, idA, pod)
	err := withHandle(func(h *netlink.Handle) error {
		attrs := netlink.NewLinkAttrs()
		attrs.Name = plan.NICs[0].Tap
		return h.LinkAdd(&netlink.Bridge{LinkAttrs: attrs})
	})
	if err != nil {
		t.Fatal(err)
	}
	defer removeLink(t, plan.NICs[0].Tap)
	if err := n.setup.Apply(t.Context(), plan); !errors.Is(err, errNoTap) {
		t.Errorf("Apply with the tap's name taken: %v", err)
	}
	same(t, "pod", before, state(t, pod))
	if links := nodeLinks(t); !strings.Contains(links, plan.NICs[0].Tap) {
		t.Error("a link that is not ours was removed")
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := n.setup.Apply(ctx, plan); !errors.Is(err, context.Canceled) {
		t.Errorf("Apply with its context ended: %v", err)
	}
	same(t, "pod", before, state(t, pod))
}

func (n *node) plan(t *testing.T, id, ns string) Plan {
	t.Helper()
	return n.planOf(t, id, Pod{Netns: ns})
}

func (n *node) planOf(t *testing.T, id string, pod Pod) Plan {
	t.Helper()
	plan, err := n.setup.Plan(t.Context(), id, pod)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { n.undo(t, plan) })
	return throughJSON(t, plan)
}

// TestUndoWithRoutesOfASource: CNI's ptp gives IPv6 routes the pod's address as their source, which the kernel takes only once
// it no longer looks for that address elsewhere.
func TestUndoWithRoutesOfASource(t *testing.T) {
	n := newNode(t)
	n.conf = map[string]any{"cniVersion": "0.4.0", "name": "ptpnet", "type": "ptp", "ipam": map[string]any{
		"type": "host-local", "dataDir": t.TempDir(), "subnet": "fd00:89::/64", "routes": []map[string]string{{"dst": "::/0"}},
	}}
	pod := n.addPod(t)
	inPod(t, pod, func(*netlink.Handle) error {
		return errors.Join(writeSysctl("ipv6/conf/all/accept_dad", "1"), writeSysctl("ipv6/conf/eth0/accept_dad", "1"))
	})
	before := state(t, pod)
	m := n.start(t, idA, Pod{Netns: pod})
	n.undo(t, m.plan)
	same(t, "pod", before, state(t, pod))
}

// undo is called in cleanups too, where a test's context has ended.
func (n *node) undo(t *testing.T, p Plan) {
	t.Helper()
	if err := n.setup.Undo(context.Background(), p); err != nil {
		t.Error("undo:", err)
	}
}

// throughJSON is what a Plan goes through on its way over the disk.
func throughJSON(t *testing.T, p Plan) (back Plan) {
	t.Helper()
	text, err := json.Marshal(p)
	if err == nil {
		err = json.Unmarshal(text, &back)
	}
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(p, back, compareAddrs); diff != "" {
		t.Errorf("a Plan in JSON (-before +after):\n%s", diff)
	}
	return back
}

func (n *node) noFiles(t *testing.T) {
	t.Helper()
	entries, err := os.ReadDir(n.dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, entry := range entries {
		t.Errorf("%s is left", filepath.Join(n.dir, entry.Name()))
	}
}

func same(t *testing.T, what, want, got string) {
	t.Helper()
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("%s (-before +after):\n%s", what, diff)
	}
}

// nodeLinks are names, without the veths whose pods the test has removed.
func nodeLinks(t *testing.T) string {
	t.Helper()
	var names []string
	inPod(t, hostNamespace, func(h *netlink.Handle) error {
		links, err := h.LinkList()
		for _, link := range links {
			names = append(names, link.Attrs().Name)
		}
		return err
	})
	return strings.Join(names, "\n")
}

// settled waits until the kernel has noticed that all links that are up have a peer,
// and made their IPv6 addresses.
func settled(t *testing.T, ns string) {
	t.Helper()
	for deadline := time.Now().Add(2 * time.Minute); ; time.Sleep(5 * time.Millisecond) {
		running := true
		inPod(t, ns, func(h *netlink.Handle) error {
			links, err := h.LinkList()
			for _, link := range links {
				a := link.Attrs()
				_, tap := link.(*netlink.Tuntap) // it may not be open
				up, runs := a.Flags&net.FlagUp != 0, a.Flags&net.FlagRunning != 0
				running = running && (runs || !up || tap)
			}
			return err
		})
		if running {
			return
		}
		if time.Now().After(deadline) {
			t.Fatal("links do not come up")
		}
	}
}

// state is all of a namespace's network that a VM could have changed, as text.
func state(t *testing.T, ns string) string {
	t.Helper()
	settled(t, ns)
	var b strings.Builder
	inPod(t, ns, func(h *netlink.Handle) error {
		links, err := h.LinkList()
		if err != nil {
			return err
		}
		for _, link := range links {
			a := link.Attrs()
			disabled, err := ipv6Disabled(a.Name)
			fmt.Fprintf(&b, "%d %s %s %s mtu %d master %d flags %v promisc %d noipv6 %v %v\n",
				a.Index, a.Name, link.Type(), a.HardwareAddr, a.MTU, a.MasterIndex, a.Flags,
				a.Promisc, disabled, err)
			addrs, err := h.AddrList(link, netlink.FAMILY_ALL)
			if err != nil {
				return err
			}
			for _, addr := range addrs {
				addr.Flags &^= unix.IFA_F_TENTATIVE // until the kernel has probed it
				fmt.Fprintf(&b, "  %+v\n", addr)
			}
		}
		return writeRoutes(&b, h)
	})
	b.WriteString(run(t, ns, "nft", "list", "ruleset"))
	b.WriteString(run(t, ns, "sh", "-c", "cd /proc/sys/net; grep -s . ipv4/ip_forward ipv4/conf/eth0/forwarding "+
		"ipv6/conf/all/forwarding ipv6/conf/eth0/accept_ra bridge/bridge-nf-call-*; true"))
	return b.String()
}

// writeRoutes leaves out what the kernel makes of IPv6 addresses, when it is done with them. Of
// routes that are equal but for their interface, the kernel has the newest last.
func writeRoutes(b *strings.Builder, h *netlink.Handle) error {
	for _, family := range []int{netlink.FAMILY_V4, netlink.FAMILY_V6} {
		routes, err := h.RouteListFiltered(family, &netlink.Route{}, netlink.RT_FILTER_TABLE)
		if err != nil {
			return err
		}
		var lines []string
		for _, r := range routes {
			if family == netlink.FAMILY_V4 || r.Table != unix.RT_TABLE_LOCAL {
				lines = append(lines, fmt.Sprintf("%+v priority %d scope %s protocol %s type %d\n",
					r, r.Priority, r.Scope, r.Protocol, r.Type))
			}
		}
		slices.Sort(lines)
		b.WriteString(strings.Join(lines, ""))
	}
	return nil
}
