package hotplug_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"gotest.tools/v3/assert"

	"github.com/nodevirt/nodevirt/netsetup"
	"github.com/nodevirt/nodevirt/shim/domain"
	"github.com/nodevirt/nodevirt/shim/record"
	"github.com/nodevirt/nodevirt/shim/vm/hotplug/order"
	"github.com/nodevirt/nodevirt/shim/vm/table"
	"github.com/nodevirt/nodevirt/shim/vm/vmerrors"
	"github.com/nodevirt/nodevirt/shim/vmspec"
)

// The rig's domain has network cards, and its networks are those of attachment pods.

func (d *domains) AttachCard(_ context.Context, _ string, card vmspec.Interface, n domain.NIC) error {
	if on, _ := d.store.Container("c"); on.FindCard(card.Name) < 0 {
		return errors.New("it is not recorded")
	}
	done, err := d.enter()
	if err != nil {
		return err
	}
	defer done()
	if !d.networks[n.Tap].made {
		return errors.New("there is no tap")
	}
	if d.failing == "before" {
		return errRefused
	}
	d.cards[card.Name] = true
	if d.failing == "after" {
		d.away = true
		return domain.ErrUnavailable
	}
	return nil
}

func (d *domains) RequestCard(_ context.Context, _, name string) error {
	done, err := d.enter()
	if err != nil {
		return err
	}
	defer done()
	d.requests++
	if !d.stubborn {
		delete(d.cards, name)
	}
	return nil
}

func (d *domains) Cards(context.Context, string) (map[string]bool, error) {
	done, err := d.enter()
	if err != nil {
		return nil, err
	}
	defer done()
	all := map[string]bool{"default": true}
	for name := range d.cards {
		all[name] = true
	}
	return all, nil
}

// network is one of an attachment pod.
type network struct{ made, connected bool }

// networks are those of attachment pods, by the names of their taps.
type networks rig

func (n *networks) Plan(_ context.Context, _ record.Container, card vmspec.Interface, container, sandbox string) (netsetup.Plan, error) {
	if sandbox != "hp" {
		return netsetup.Plan{}, errRefused
	}
	nic := netsetup.NIC{Card: card.Name, Interface: card.Device, Tap: "tap-" + card.Name, GuestMAC: netsetup.MAC{2, 0, 0, 0, 0, 9}}
	return netsetup.Plan{ID: container, Netns: "/run/netns/hp", NICs: []netsetup.NIC{nic}}, nil
}

func (n *networks) set(p netsetup.Plan, failing string, change func(*network)) error {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.failing == failing {
		return errRefused
	}
	one := n.networks[p.NICs[0].Tap]
	change(&one)
	n.networks[p.NICs[0].Tap] = one
	return nil
}

func (n *networks) Make(_ context.Context, _ record.Container, p netsetup.Plan) error {
	return n.set(p, "network", func(one *network) { one.made = true })
}

func (n *networks) Connect(_ context.Context, p netsetup.Plan) error {
	return n.set(p, "connect", func(one *network) { one.connected = true })
}

func (n *networks) Keep(_ *table.VM, p netsetup.Plan) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.kept = append(n.kept, p.ID)
}

func (n *networks) Undo(_ context.Context, r record.Container, c record.PluggedCard) error {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.cards[c.Card.Name] {
		return errors.New("the domain has the card")
	}
	if r.FindCard(c.Card.Name) < 0 {
		return errors.New("it is not recorded")
	}
	delete(n.networks, c.Network.NICs[0].Tap)
	return nil
}

// card gives an order about a network card, and returns the answer.
func (r *rig) card(t *testing.T, control, argument string) (order.Card, error) {
	t.Helper()
	var c order.Card
	text, err := r.Do(t.Context(), r.vm, control, argument)
	if err == nil {
		err = json.Unmarshal(text, &c)
	}
	return c, err
}

func cardOrder(name string, more ...string) string {
	return fmt.Sprintf(`{"interface": {"name": %q, "bridge": {}%s}, "container": %q}`, name, strings.Join(more, ""), id)
}

func named(name string) string { return fmt.Sprintf(`{"name": %q}`, name) }

// TestCards: a running VM gets a network card of an attachment pod, and loses it again. The orders may be
// repeated.
func TestCards(t *testing.T) {
	r := newRig(t)
	want := order.Card{Name: "lan", State: order.Attached, MAC: "02:00:00:00:00:09", Container: id}
	for range 2 {
		got, err := r.card(t, order.CardAttach, cardOrder("lan"))
		assert.NilError(t, err)
		assert.DeepEqual(t, got, want)
	}
	assert.Equal(t, r.networks["tap-lan"], network{made: true, connected: true})
	assert.DeepEqual(t, r.kept, []string{id})
	card := r.vm.Record().Cards[0].Card
	assert.Equal(t, card.Device, vmspec.PluginInterface("lan"))
	assert.Equal(t, card.Binding, vmspec.BindingBridge)

	// Its link is one of the VM's.
	_, err := r.Do(t.Context(), r.vm, order.Link, `{"down": ["lan"]}`)
	assert.NilError(t, err)
	assert.DeepEqual(t, r.down, []string{"lan"})
	assert.Assert(t, r.vm.Record().Cards[0].Card.Unplugged)

	_, err = r.card(t, order.CardAttach, strings.Replace(cardOrder("lan"), "aaaa", "bbbb", 1))
	assert.ErrorContains(t, err, "refused") // the container is not the VM's
	_, err = r.card(t, order.CardAttach, cardOrder("other"))
	assert.ErrorIs(t, err, vmerrors.ErrInvalid) // the pod has the network of one card
	_, err = r.order(t, order.Attach, fmt.Sprintf(`{"disk": {"name": "v1"}, "container": %q}`, id))
	assert.NilError(t, err)

	for range 2 {
		got, err := r.card(t, order.CardDetach, named("lan"))
		assert.NilError(t, err)
		assert.DeepEqual(t, got, order.Card{Name: "lan", State: order.None})
	}
	assert.Equal(t, len(r.networks)+len(r.cards)+len(r.vm.Record().Cards), 0)
	assert.Equal(t, r.looks, 2) // for its addresses
	got, err := r.card(t, order.CardStatus, named("lan"))
	assert.NilError(t, err)
	assert.Equal(t, got.State, order.None)
}

// TestCardsRefused: a VM does not get every network card.
func TestCardsRefused(t *testing.T) {
	r := newRig(t)
	c := r.vm.Record()
	c.Spec.Interfaces = []vmspec.Interface{{Name: "default", ACPIIndex: 7}}
	assert.NilError(t, r.table.Put(r.vm, c))
	for argument, want := range map[string]string{
		cardOrder("default"):                                        "already exists",
		cardOrder("lan", `, "acpiIndex": 7`):                        "acpiIndex 7, too",
		cardOrder("lan", `, "masquerade": {}`):                      "masquerade",
		cardOrder("lan", `, "bootOrder": 1`):                        "bootOrder",
		cardOrder("lan", `, "tag": "role"`):                         "tag",
		cardOrder("lan", `, "state": "absent"`):                     "state",
		cardOrder("lan", `, "model": "unknown"`):                    "model",
		cardOrder("lan", `, "x": "`+strings.Repeat("x", 3<<10)+`"`): "the limit is",
		cardOrder("a b"):                                            "name",
		`{"interface": {"bridge": {}}, "container": "` + id + `"}`:  "no interface with a name",
		`{"interface": [], "container": "` + id + `"}`:              "not JSON as expected",
		`{"interface": {"name": "lan"}, "container": "x"}`:          "not a container's id",
	} {
		if _, err := r.card(t, order.CardAttach, argument); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%.200s: %v; want %q", argument, err, want)
		}
	}
	_, err := r.card(t, order.CardDetach, named("default"))
	assert.ErrorIs(t, err, vmerrors.ErrState)
	_, err = r.card(t, order.CardStatus, named("a b"))
	assert.ErrorIs(t, err, vmerrors.ErrInvalid)
	r.moving = true
	_, err = r.card(t, order.CardAttach, cardOrder("lan"))
	assert.ErrorIs(t, err, vmerrors.ErrState)
	r.moving = false
	for i := range order.MaxCards {
		c = c.WithCard(record.PluggedCard{Card: vmspec.Interface{Name: fmt.Sprint("n", i)}})
	}
	assert.NilError(t, r.table.Put(r.vm, c))
	_, err = r.card(t, order.CardAttach, cardOrder("lan"))
	assert.ErrorIs(t, err, vmerrors.ErrRange)
	assert.Equal(t, len(r.networks)+len(r.cards), 0)
}

// TestCardFailures: what failed leaves nothing behind, or, if libvirtd's answer was lost, what libvirt says.
func TestCardFailures(t *testing.T) {
	for _, failing := range []string{"network", "before", "connect"} {
		synctest.Test(t, func(t *testing.T) {
			r := newRig(t)
			r.failing = failing
			_, err := r.card(t, order.CardAttach, cardOrder("lan"))
			assert.ErrorIs(t, err, errRefused)
			time.Sleep(time.Minute)
			synctest.Wait()
			r.locked(func() { assert.Equal(t, len(r.networks)+len(r.cards), 0, failing) })
			assert.Equal(t, len(r.vm.Record().Cards), 0)
			r.failing = ""
			_, err = r.card(t, order.CardAttach, cardOrder("lan"))
			assert.NilError(t, err)
		})
	}
	for _, restarted := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			r := newRig(t)
			r.failing = "after"
			_, err := r.card(t, order.CardAttach, cardOrder("lan"))
			assert.ErrorIs(t, err, domain.ErrUnavailable)
			if restarted {
				r.start(t)
			}
			r.locked(func() { r.away = false })
			time.Sleep(time.Minute)
			synctest.Wait()
			assert.Equal(t, r.vm.Record().Cards[0].State, record.Attached)
			r.locked(func() { assert.Equal(t, r.networks["tap-lan"], network{made: true, connected: true}) })
		})
	}
}

// TestStubbornCard: the node asks a guest again until it releases the card.
func TestStubbornCard(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		_, err := r.card(t, order.CardAttach, cardOrder("lan"))
		assert.NilError(t, err)
		r.stubborn = true
		got, err := r.card(t, order.CardDetach, named("lan"))
		assert.NilError(t, err)
		assert.Equal(t, got.State, order.Detaching)
		_, err = r.card(t, order.CardAttach, cardOrder("lan"))
		assert.ErrorIs(t, err, vmerrors.ErrState)
		r.start(t)
		r.locked(func() { r.stubborn = false })
		time.Sleep(2 * time.Minute)
		synctest.Wait()
		assert.Equal(t, len(r.vm.Record().Cards), 0)
		r.locked(func() { assert.Equal(t, len(r.networks), 0) })
	})
}

// withOwn gives the VM cards that it started with: the pod network's, and own.
func (r *rig) withOwn(t *testing.T) {
	t.Helper()
	c := r.vm.Record()
	c.Spec.Interfaces = []vmspec.Interface{
		{Name: "default", Binding: vmspec.BindingMasquerade, Device: "eth0"},
		{Name: "own", Binding: vmspec.BindingBridge, Device: "net1"},
		{Name: "tap", Binding: vmspec.BindingTap, Plugin: "macvtap", Device: "net2"},
	}
	c.Network = &netsetup.Plan{ID: "c", Netns: "/run/netns/vm"}
	for _, i := range c.Spec.Interfaces {
		c.Network.NICs = append(c.Network.NICs, netsetup.NIC{Card: i.Name, Interface: i.Device, Tap: "tap-" + i.Name, GuestMAC: netsetup.MAC{2, 0, 0, 0, 0, 5}})
		r.networks["tap-"+i.Name] = network{made: true, connected: true}
	}
	r.cards["own"] = true
	assert.NilError(t, r.table.Put(r.vm, c))
}

// TestCardsOfTheStart: a running VM loses a card that it started with, also if its guest releases it late, and may get
// one of the same name. It keeps the others.
func TestCardsOfTheStart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		r.withOwn(t)
		got, err := r.card(t, order.CardStatus, named("own"))
		assert.NilError(t, err)
		assert.DeepEqual(t, got, order.Card{Name: "own", State: order.Attached, MAC: "02:00:00:00:00:05"})
		for _, name := range []string{"default", "tap"} {
			_, err = r.card(t, order.CardDetach, named(name))
			assert.ErrorIs(t, err, vmerrors.ErrState)
		}
		r.moving = true
		_, err = r.card(t, order.CardDetach, named("own"))
		assert.ErrorIs(t, err, vmerrors.ErrState)
		r.moving = false
		assert.Equal(t, len(r.vm.Record().Cards), 0)

		r.stubborn = true
		got, err = r.card(t, order.CardDetach, named("own"))
		assert.NilError(t, err)
		assert.DeepEqual(t, got, order.Card{Name: "own", State: order.Detaching, MAC: "02:00:00:00:00:05"})
		now := r.vm.Record()
		assert.Equal(t, len(now.Spec.Interfaces), len(now.Network.NICs))
		assert.Assert(t, now.SharesNetwork(now.Cards[0]))
		r.start(t)
		r.locked(func() { r.stubborn = false })
		time.Sleep(2 * time.Minute)
		synctest.Wait()
		now = r.vm.Record()
		assert.Equal(t, len(now.Cards), 0)
		assert.Equal(t, len(now.Interfaces()), 2)
		assert.Equal(t, len(now.NICs()), 2)
		r.locked(func() {
			assert.Equal(t, r.networks["tap-default"], network{made: true, connected: true})
			assert.Equal(t, len(r.networks), 2)
		})
		got, err = r.card(t, order.CardDetach, named("own"))
		assert.NilError(t, err)
		assert.Equal(t, got.State, order.None)
		_, err = r.card(t, order.CardAttach, cardOrder("own"))
		assert.NilError(t, err)
	})
}

// TestLastCard: a VM without another card has no network then.
func TestLastCard(t *testing.T) {
	r := newRig(t)
	r.withOwn(t)
	c := r.vm.Record()
	c.Spec.Interfaces = c.Spec.Interfaces[1:2]
	c.Network.NICs = c.Network.NICs[1:2]
	assert.NilError(t, r.table.Put(r.vm, c))
	got, err := r.card(t, order.CardDetach, named("own"))
	assert.NilError(t, err)
	assert.Equal(t, got.State, order.None)
	assert.Assert(t, r.vm.Record().Network == nil)
}
