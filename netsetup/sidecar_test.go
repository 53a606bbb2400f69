package netsetup

import (
	"strings"
	"testing"
)

// TestASidecarHarmsItsOwnPodAlone: a sidecar with NET_ADMIN can do all that root can do in the pod's
// network namespace. It can cut its guest off and remove the guest's filter. It can neither keep
// the VM from ending, nor change the node's network or another pod's.
func TestASidecarHarmsItsOwnPodAlone(t *testing.T) {
	for name, commands := range map[string][]string{
		"removes the filter":      {"nft flush ruleset"},
		"removes the tap":         {"ip link delete TAP"},
		"renames the tap":         {"ip link set TAP name mine"},
		"removes the bridge":      {"ip link delete BRIDGE"},
		"renames the bridge":      {"ip link set BRIDGE name mine"},
		"makes another bridge":    {"ip link delete BRIDGE", "ip link add BRIDGE type bridge"},
		"makes another table":     {"nft flush ruleset", "nft add table inet nodevirt", "nft add chain inet nodevirt input"},
		"removes the card":        {"ip link delete eth0"},
		"renames the card":        {"ip link set eth0 down", "ip link set eth0 name mine"},
		"takes another's address": {"ip address flush dev BRIDGE", "ip address add OTHER/24 dev BRIDGE"},
	} {
		t.Run(name, func(t *testing.T) {
			n := newNode(t)
			pod, otherPod := n.addPod(t), n.addPod(t)
			other := n.start(t, idB, Pod{Netns: otherPod})
			other.configure(t, other.dhcp(t, "system"))
			target := other.serve(t, "from the other pod")
			node, others := nodeLinks(t), state(t, otherPod)

			m := n.start(t, idA, Pod{Netns: pod})
			pid, err := n.setup.server(m.plan).Find()
			if err != nil || pid == 0 {
				t.Fatalf("dnsmasq: pid %d, %v", pid, err)
			}
			address, _, _ := strings.Cut(target, ":")
			names := strings.NewReplacer("TAP", m.plan.NICs[0].Tap, "BRIDGE", m.plan.NICs[0].Bridge, "OTHER", address)
			for _, command := range commands {
				run(t, pod, strings.Fields(names.Replace(command))...)
			}
			if _, err := n.setup.Counters(m.plan); err != nil {
				t.Error(err)
			}
			if got := ask(t, hostNamespace, target); got != "from the other pod" {
				t.Errorf("the other guest answers %q", got)
			}
			n.undo(t, m.plan)
			if n.serves(pid) {
				t.Error("dnsmasq runs on")
			}
			same(t, "the other pod", others, state(t, otherPod))
			if now := nodeLinks(t); now != node && name != "removes the card" {
				t.Errorf("the node had the links\n%s\nand has\n%s", node, now)
			}
			n.undo(t, other.plan)
		})
	}
}
