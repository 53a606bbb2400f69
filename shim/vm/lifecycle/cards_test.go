package lifecycle_test

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/nodevirt/nodevirt/shim/record"
	"github.com/nodevirt/nodevirt/shim/vmspec"
)

// plugged gives a running VM a card of another pod, as package hotplug does, and returns the ID of its network.
func (n *node) plugged(t *testing.T, id string) (network string) {
	t.Helper()
	v, err := n.table.Find(id)
	must(t, err)
	cards, network := n.Cards(), strings.Repeat("c", 64)
	card := vmspec.Interface{Name: "lan", Model: "virtio", Binding: vmspec.BindingBridge, Device: "net1"}
	p, err := cards.Plan(t.Context(), v.Record(), card, network, "other")
	must(t, err)
	if p.ID != network || p.Netns != "/run/netns/other" || p.NICs[0].Card != "lan" {
		t.Errorf("plan %+v", p)
	}
	must(t, n.table.Put(v, v.Record().WithCard(record.PluggedCard{State: record.Attached, Card: card, Container: network, Network: p})))
	must(t, cards.Make(t.Context(), v.Record(), p))
	must(t, cards.Connect(t.Context(), p))
	cards.Keep(v, p)
	return network
}

// TestCardsNetworks: dnsmasq of a card that a VM has got runs in the VM's group, is started again also by the next
// shim, and ends with the VM or with the card.
func TestCardsNetworks(t *testing.T) {
	onNode(t, func(t *testing.T, n *node) {
		id := n.started(t, "pod")
		network := n.plugged(t, id)
		serves := func() {
			t.Helper()
			time.Sleep(2 * time.Second)
			_, pids, _ := n.groups.Of(id)
			if pid := n.network.Server(network); pid == 0 || pids[len(pids)-1] != pid {
				t.Errorf("dnsmasq is process %d; the group has %v", pid, pids)
			}
		}
		serves()
		n.network.Kill(network)
		serves()
		was := n.network.Server(network)
		n.restart(t)
		if n.network.Server(network) != was {
			t.Error("the next shim has ended the dnsmasq of the card")
		}
		n.network.Kill(network)
		serves()

		v, err := n.table.Find(id)
		must(t, err)
		unlock, err := v.Lock(t.Context())
		must(t, err)
		must(t, n.Cards().Undo(t.Context(), v.Record(), v.Record().Cards[0]))
		must(t, n.table.Put(v, v.Record().WithoutCard("lan")))
		unlock()
		time.Sleep(time.Minute)
		if n.network.Server(network) != 0 || n.network.Has(network, "bridge") {
			t.Error("the network of a card that is gone is served")
		}

		n.plugged(t, id)
		n.script.Fail("Network.Undo", errors.New("busy"))
		must(t, n.Stop(t.Context(), id, 0))
		if !n.rec(t, id).Unclean || len(n.rec(t, id).Cards) != 1 {
			t.Errorf("the record forgets the network of the card: %+v", n.rec(t, id).Cards)
		}
		n.script.Fail("Network.Undo", nil)
		time.Sleep(2 * time.Minute)
		if r := n.rec(t, id); r.Unclean || len(r.Cards) != 0 || n.network.Server(network) != 0 || n.network.Has(network, "bridge") {
			t.Errorf("the end of the VM leaves the network of its card: %+v", r.Cards)
		}
	})
}

// TestLostCards: the network of a card that a VM was about to lose ends with the VM.
func TestLostCards(t *testing.T) {
	onNode(t, func(t *testing.T, n *node) {
		id := n.started(t, "pod")
		v, err := n.table.Find(id)
		must(t, err)
		r, found := v.Record().LosingCard(v.Record().Spec.Interfaces[0].Name)
		if !found || r.Network != nil || len(r.Cards) != 1 || len(r.Spec.Interfaces) != 0 {
			t.Fatalf("the VM has network %+v and loses %+v", r.Network, r.Cards)
		}
		must(t, n.table.Put(v, r))
		must(t, n.Stop(t.Context(), id, 0))
		time.Sleep(time.Minute)
		if r := n.rec(t, id); r.Unclean || len(r.Cards) != 0 || n.network.Has(id, "bridge") || n.network.Server(id) != 0 {
			t.Errorf("left: %+v", r.Cards)
		}
	})
}
