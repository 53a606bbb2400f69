package domain

import (
	"fmt"
	"net"
	"os"
	"strings"
	"testing"

	"github.com/vishvananda/netlink"

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
