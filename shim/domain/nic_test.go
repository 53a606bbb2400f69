package domain

import (
	"errors"
	"fmt"
	"net"
	"os"
	"strings"
	"testing"

	"github.com/vishvananda/netlink"
	"gotest.tools/v3/assert"
	"libvirt.org/go/libvirtxml"

	"github.com/nodevirt/nodevirt/shim/vmspec"
	"github.com/nodevirt/nodevirt/test/needs"
)

// newTap makes a persistent tap as netsetup does.
func newTap(t *testing.T, name string) netlink.Link {
	t.Helper()
	needs.Parts(t, "root")
	tap := &netlink.Tuntap{
		LinkAttrs: netlink.LinkAttrs{Name: name, MTU: 1400},
		Mode:      netlink.TUNTAP_MODE_TAP,
		Flags:     netlink.TUNTAP_VNET_HDR | netlink.TUNTAP_NO_PI,
	}
	if err := netlink.LinkAdd(tap); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = netlink.LinkDel(tap) })
	link, err := netlink.LinkByName(name)
	if err != nil {
		t.Fatal(err)
	}
	return link
}

func TestNIC(t *testing.T) {
	startLibvirtd(t)
	d := startDriver(t)
	before := newTap(t, "vmtap0")
	g := newGuest(t)
	g.Spec.Interfaces = []vmspec.Interface{{Name: "default", Model: "virtio"}}
	g.NICs = []NIC{{Name: g.Spec.Interfaces[0].Name, Tap: "vmtap0", MAC: net.HardwareAddr{2, 0, 0, 0, 0, 7}, MTU: 1400}}
	pid := bootGuest(t, d, g)

	args, err := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", pid))
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{`"host_mtu":1400`, `"mac":"02:00:00:00:00:07"`} {
		if !strings.Contains(string(args), want) {
			t.Errorf("QEMU's arguments have no %s: %q", want, args)
		}
	}
	if err := d.Lifecycle.Destroy(t.Context(), g.UUID); err != nil {
		t.Fatal(err)
	}
	after, err := netlink.LinkByName("vmtap0")
	if err != nil {
		t.Fatal("the tap went with the domain:", err)
	}
	b, a := before.Attrs(), after.Attrs()
	if a.Index != b.Index || a.MTU != b.MTU || a.HardwareAddr.String() != b.HardwareAddr.String() {
		t.Errorf("the tap changed from %+v to %+v", b, a)
	}
}

// TestLinks: a running domain's cards get and lose links, and those that have the state stay as they are.
func TestLinks(t *testing.T) {
	startLibvirtd(t)
	d := startDriver(t)
	newTap(t, "vmtap1")
	newTap(t, "vmtap2")
	g := newGuest(t)
	g.Spec.Interfaces = []vmspec.Interface{{Name: "default", Model: "virtio"}, {Name: "lan", Model: "e1000e", Unplugged: true, Queues: 1}}
	g.NICs = []NIC{{Name: "default", Tap: "vmtap1", MAC: net.HardwareAddr{2, 0, 0, 0, 0, 7}, MTU: 1400}, {Name: "lan", Tap: "vmtap2", MAC: net.HardwareAddr{2, 0, 0, 0, 0, 8}}}
	bootGuest(t, d, g)
	for _, down := range [][2]bool{{true, true}, {true, false}, {true, false}, {false, true}, {false, false}} {
		for i := range g.Spec.Interfaces {
			g.Spec.Interfaces[i].Unplugged = down[i]
		}
		absent := vmspec.Interface{Name: "removed", Unplugged: true} // by a hook sidecar
		assert.NilError(t, d.Hotplug.SetLinks(t.Context(), g.UUID, append(g.Spec.Interfaces, absent)))
		live := liveOf(t, d, g.UUID)
		for i, card := range live.Devices.Interfaces {
			if has := card.Link != nil && card.Link.State == "down"; has != down[i] {
				t.Errorf("card %d is down: %t, want %v", i, has, down)
			}
		}
	}
	assert.NilError(t, d.Lifecycle.Destroy(t.Context(), g.UUID))
	if err := d.Hotplug.SetLinks(t.Context(), g.UUID, g.Spec.Interfaces); !errors.Is(err, ErrNotRunning) && !errors.Is(err, ErrNotFound) {
		t.Errorf("of a domain that has ended: %v", err)
	}
}

// TestCards: a running domain gets network cards on free ports, and is asked to release them. The guest, which
// has no operating system, keeps them.
func TestCards(t *testing.T) {
	startLibvirtd(t)
	d := startDriver(t)
	g := newGuest(t)
	pid := bootGuest(t, d, g)
	card := vmspec.Interface{Name: "lan", Model: "virtio", Unplugged: true}
	n := NIC{Name: "lan", Tap: "vmtap3", MAC: net.HardwareAddr{2, 0, 0, 0, 0, 9}, MTU: 1400}
	if err := d.Hotplug.AttachCard(t.Context(), g.UUID, card, n); err == nil {
		t.Error("a card without a tap is attached")
	}
	before := newTap(t, n.Tap)
	assert.NilError(t, d.Hotplug.AttachCard(t.Context(), g.UUID, card, n))
	has, err := d.Hotplug.Cards(t.Context(), g.UUID)
	assert.NilError(t, err)
	assert.DeepEqual(t, has, map[string]bool{"lan": true})
	live := liveOf(t, d, g.UUID).Devices.Interfaces[0]
	assert.Equal(t, live.Link.State, "down")
	assert.Equal(t, live.MAC.Address, n.MAC.String())
	assert.ErrorContains(t, d.Hotplug.AttachCard(t.Context(), g.UUID, card, n), "already exists")
	other := vmspec.Interface{Name: "other", Model: "virtio"}
	assert.ErrorContains(t, d.Hotplug.AttachCard(t.Context(), g.UUID, other, n), "is another card's")

	last := error(nil)
	for i := 1; last == nil && i < maxPort; i++ {
		tap := fmt.Sprintf("vmtap3.%d", i)
		newTap(t, tap)
		last = d.Hotplug.AttachCard(t.Context(), g.UUID, vmspec.Interface{Name: tap[5:], Model: "virtio"}, NIC{Tap: tap, MAC: net.HardwareAddr{2, 0, 0, 0, 1, byte(i)}})
	}
	assert.ErrorIs(t, last, ErrNoCardPort)
	for range 2 {
		_ = d.Hotplug.RequestCard(t.Context(), g.UUID, "lan") // QEMU refuses a second request for a while
	}
	assert.NilError(t, d.Hotplug.RequestCard(t.Context(), g.UUID, "none"))
	assert.NilError(t, d.Lifecycle.Destroy(t.Context(), g.UUID))
	after, err := netlink.LinkByName(n.Tap)
	if err != nil || after.Attrs().Index != before.Attrs().Index {
		t.Errorf("the tap of the card went with QEMU, process %d: %v", pid, err)
	}
}

// liveOf returns a running domain as libvirt describes it.
func liveOf(t *testing.T, d *Driver, uuid string) libvirtxml.Domain {
	t.Helper()
	live, err := onDomain(t.Context(), d.Connection, "read", uuid, liveXML)
	assert.NilError(t, err)
	return live
}
