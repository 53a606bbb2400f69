package netsetup

import "testing"

// TestRelease: the interface of a card that the guest has lost is as before, and the VM's other cards work on.
func TestRelease(t *testing.T) {
	n := newNode(t)
	run(t, hostNamespace, "ip", "link", "add", "lan0", "type", "veth", "peer", "name", "lan1")
	run(t, hostNamespace, "sh", "-c", "ip link set lan0 up; ip link set lan1 up")
	for _, link := range []string{"lan0", "cni1", "cni3"} {
		t.Cleanup(func() { removeLink(t, link) })
	}
	pod, other := n.addPod(t), n.addPod(t)
	addNetworks(t, t.TempDir(), "pod", pod)
	before := state(t, pod)
	device := func(name string) string {
		return run(t, pod, "sh", "-c", "ip -br -4 addr show dev "+name+"; ip -br link show dev "+name+"; ip -4 route show dev "+name)
	}
	had := map[string]string{"eth0": device("eth0"), "net1": device("net1")}
	cards := n.startCards(t, idA, on(pod, "eth0", "net1", "net3"))
	whole := cards[0].plan
	whole.NICs = nil
	for i, c := range cards {
		c.plan.NICs[0].Card = []string{"default", "lan", "more"}[i]
		whole.NICs = append(whole.NICs, c.plan.NICs...)
	}
	cards[0].configure(t, cards[0].dhcp(t, "system"))
	cards[0].serve(t, "guest")
	if _, _, found := whole.Split("none"); found {
		t.Error("there is no such card")
	}
	rest := whole
	for _, name := range []string{"lan", "default"} {
		left, one, found := rest.Split(name)
		if !found || len(left.NICs) != len(rest.NICs)-1 || len(one.NICs) != 1 || one.NICs[0].Card != name || len(whole.NICs) != 3 {
			t.Fatalf("split off %s: %+v and %+v", name, left, one)
		}
		one = throughJSON(t, one)
		if name == "default" { // the first card stands for what the cards share
			if got := ask(t, other, "10.88.1.2:80"); got != "guest" {
				t.Errorf("the guest answers %q", got)
			}
		}
		for range 2 {
			if err := n.setup.Release(t.Context(), one); err != nil {
				t.Fatal(err)
			}
		}
		if name := one.NICs[0].Interface; device(name) != had[name] {
			t.Errorf("interface %s was\n%s\nand is\n%s", name, had[name], device(name))
		}
		rest = left
	}
	n.undo(t, rest)
	same(t, "pod", before, state(t, pod))
	n.noFiles(t)
}
