package netsetup

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// sweep has a new shim find a VM without a record.
func (n *node) sweep(t *testing.T) {
	t.Helper()
	if err := New(Options{Dir: n.dir}).Sweep(t.Context(), func(string) bool { return false }); err != nil {
		t.Error("sweep:", err)
	}
}

// TestSweepGivesBack: without a record, the pod gets back all that its VM has changed, on each kind of network.
func TestSweepGivesBack(t *testing.T) {
	for _, kind := range networkKinds() {
		for _, binding := range []Binding{Bridge, Masquerade} {
			if kind.static && binding == Masquerade {
				continue // it needs an address
			}
			t.Run(kind.name+" "+string(binding), func(t *testing.T) {
				l := newLab(t, kind, 4, 6)
				link := podInterface
				if kind.static {
					link = "net1"
				}
				pod := l.add(t, link)
				podBefore, nodeBefore := state(t, pod.ns), nodeLinks(t)
				wanted := (&cell{lab: l, binding: binding}).pod(pod)
				wanted.Hostname, wanted.Nameservers = "web", addrs("10.96.0.10", "fd00::10")
				m := l.start(t, idA, wanted)
				pid, err := l.setup.server(m.plan).Find()
				if err != nil {
					t.Fatal(err)
				}
				for range 2 {
					l.sweep(t)
					same(t, "pod", podBefore, state(t, pod.ns))
					same(t, "node", nodeBefore, nodeLinks(t))
					l.noFiles(t)
				}
				if pid != 0 && l.serves(pid) {
					t.Error("dnsmasq runs on")
				}
			})
		}
	}
}

// TestSweepFromEachPoint: a start may have been cut off anywhere.
func TestSweepFromEachPoint(t *testing.T) {
	n := newNode(t)
	pod := n.addPod(t)
	podBefore, nodeBefore := state(t, pod), nodeLinks(t)
	plan := n.plan(t, idA, pod)
	if err := n.setup.Taps(t.Context(), plan); err != nil {
		t.Fatal(err)
	}
	steps := n.setup.steps()
	for last := range len(steps) + 1 {
		for _, step := range steps[:last] {
			if err := step.do(t.Context(), plan); err != nil {
				t.Fatalf("%s: %v", step.name, err)
			}
		}
		n.sweep(t)
		same(t, "pod", podBefore, state(t, pod))
		same(t, "node", nodeBefore, nodeLinks(t))
		n.noFiles(t)
		if err := n.setup.keep(plan); err != nil {
			t.Fatal(err)
		}
	}
}

// TestSweepAfterRelease: what the cards share goes, though the first of them has gone before.
func TestSweepAfterRelease(t *testing.T) {
	n := newNode(t)
	pod := n.addPod(t)
	second := map[string]any{"cniVersion": "0.4.0", "name": "second", "type": "bridge", "bridge": "cni1"}
	runCNI(t, second, "ADD", "second", pod, "net1")
	t.Cleanup(func() { removeLink(t, "cni1") })
	before := state(t, pod)
	plan := n.planOf(t, idA, Pod{Netns: pod, Interfaces: []Interface{{Card: "a", Name: "net1"}, {Card: "b", Name: "eth0"}}})
	if err := n.setup.Apply(t.Context(), plan); err != nil {
		t.Fatal(err)
	}
	_, one, _ := plan.Split("a")
	if err := n.setup.Release(t.Context(), one); err != nil {
		t.Fatal(err)
	}
	n.sweep(t)
	same(t, "pod", before, state(t, pod))
}

// TestSweepLetsCNICleanUp: CNI's bridge plug-in finds its rules of masquerade by the addresses that the pod has at its end.
func TestSweepLetsCNICleanUp(t *testing.T) {
	n := newNode(t)
	n.conf["ipMasq"] = true
	rules := func() string { return run(t, hostNamespace, "nft", "--stateless", "list", "ruleset") }
	n.addPod(t) // the first makes the tables
	before := rules()
	ns := newNamespace(t)
	n.cni(t, "ADD", "lost", ns)
	if made := rules(); strings.Count(made, "CNI-") <= strings.Count(before, "CNI-") {
		t.Fatalf("CNI has made no rules:\n%s", made)
	}
	n.start(t, idA, Pod{Netns: ns})
	n.sweep(t)
	n.cni(t, "DEL", "lost", ns)
	same(t, "rules of the node", before, rules())
}

// TestSweepWithoutPlan: an older shim has written none, or it is damaged. dnsmasq ends, and a known VM's runs on.
func TestSweepWithoutPlan(t *testing.T) {
	for name, damage := range map[string]func(path string) error{
		"missing": os.Remove,
		"empty":   func(path string) error { return os.Truncate(path, 0) },
		"another VM's": func(path string) error {
			text, err := os.ReadFile(path)
			if err != nil {
				return err
			}
			return os.WriteFile(path, []byte(strings.Replace(string(text), idA, idB, 1)), 0o600)
		},
	} {
		t.Run(name, func(t *testing.T) {
			n := newNode(t)
			m, other := n.start(t, idA, Pod{Netns: n.addPod(t)}), n.start(t, idB, Pod{Netns: n.addPod(t)})
			running := state(t, other.plan.Netns)
			lost, err := n.setup.server(m.plan).Find()
			if err != nil || lost == 0 {
				t.Fatalf("dnsmasq: pid %d, %v", lost, err)
			}
			kept, err := n.setup.server(other.plan).Find()
			if err != nil || kept == 0 {
				t.Fatalf("dnsmasq: pid %d, %v", kept, err)
			}
			if err := damage(filepath.Join(n.dir, idA, planName)); err != nil {
				t.Fatal(err)
			}
			if err := n.setup.Sweep(t.Context(), func(id string) bool { return id == idB }); err != nil {
				t.Error(err)
			}
			if _, err := os.Stat(filepath.Join(n.dir, idA)); !os.IsNotExist(err) || n.serves(lost) {
				t.Errorf("its folder: %v; its dnsmasq runs: %t", err, n.serves(lost))
			}
			if !n.serves(kept) {
				t.Error("a known VM's dnsmasq has ended")
			}
			same(t, "a known VM's pod", running, state(t, other.plan.Netns))
		})
	}
}
