package netsetup

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/netip"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/vishvananda/netlink"

	"github.com/nodevirt/nodevirt/test/wait"
)

// settle has a guest configure its card as DHCP and router advertisements say, and checks the MTU that it learns. Where the
// network assigns no addresses, the guest has its own.
func (c *cell) settle(t *testing.T, g *testGuest, s site) {
	t.Helper()
	if c.kind.static {
		c.command(t, g.ns, "addr add "+s.own(4).String()+" dev "+card, "addr add "+s.own(6).String()+" dev "+card+" nodad")
		return
	}
	if c.has(4) {
		l := g.dhcp(t, "system")
		g.configure(t, l)
		if c.kind.mtu > 0 && l.mtu != c.kind.mtu {
			t.Errorf("DHCP gives the guest the MTU %d, want %d", l.mtu, c.kind.mtu)
		}
	}
	if c.has(6) {
		if g.plan.defaultRouter(g.plan.NICs[0]) {
			g.configure6(t, g.dhcp6(t, "system"))
		} else {
			g.configure6(t, g.dhcp6On(t, "system", "fd66::/64"))
		}
		mtu, err := strconv.Atoi(strings.TrimSpace(run(t, g.ns, "cat", "/proc/sys/net/ipv6/conf/"+card+"/mtu")))
		if err != nil || c.kind.mtu > 0 && mtu != c.kind.mtu {
			t.Errorf("router advertisements give the guest the MTU %d, want %d; %v", mtu, c.kind.mtu, err)
		}
	}
}

// reached returns the addresses, one of each family, at which a guest is reached.
func (c *cell) reached(g *testGuest, s site) (all []netip.Addr) {
	for _, family := range c.families {
		if c.kind.static {
			all = append(all, s.own(family).Addr())
			continue
		}
		for _, ip := range g.plan.PodIPs() {
			if ip.Is4() == (family == 4) {
				all = append(all, ip)
				break
			}
		}
	}
	return all
}

// peers returns the addresses of the other pod.
func (c *cell) peers(t *testing.T) (all []netip.Addr) {
	t.Helper()
	for _, family := range c.families {
		all = append(all, c.peer.address(t, family))
	}
	return all
}

// answered fails the test unless a port of each address answers from a namespace.
func answered(t *testing.T, what, ns string, addresses []netip.Addr, port uint16, want string) {
	t.Helper()
	if len(addresses) == 0 {
		t.Fatalf("%s: there is no address", what)
	}
	for _, ip := range addresses {
		target := netip.AddrPortFrom(ip, port).String()
		var got []byte
		var conn net.Conn
		var err error
		inPod(t, ns, func(*netlink.Handle) error {
			conn, err = (&net.Dialer{Timeout: 30 * time.Second}).DialContext(t.Context(), "tcp", target)
			return nil
		})
		if err == nil {
			got, err = io.ReadAll(conn)
			_ = conn.Close()
		}
		if err != nil || string(got) != want {
			t.Errorf("%s: %s answers %q, %v; want %q", what, target, got, err, want)
		}
	}
}

// askPods: another pod reaches the guest, and the guest reaches the pod.
func askPods(t *testing.T, c *cell) string {
	t.Helper()
	answered(t, "a pod to the guest", c.peer.ns, c.reached(c.guest, c.vm), 80, "guest")
	answered(t, "the guest to a pod", c.guest.ns, c.peers(t), 80, "peer")
	return answerYes
}

// serviceIPs are the virtual addresses of the guest's Service.
func (c *cell) serviceIPs() (all []netip.Addr) {
	for _, family := range c.families {
		all = append(all, netip.MustParseAddr(map[int]string{4: "10.96.0.10", 6: "fd96::10"}[family]))
	}
	return all
}

// withService has the node translate the Service's addresses, as kube-proxy does.
func (c *cell) withService(t *testing.T, ask func()) {
	t.Helper()
	rules := ""
	for i, ip := range c.reached(c.guest, c.vm) {
		family := "ip"
		if ip.Is6() {
			family = "ip6"
		}
		rules += fmt.Sprintf("%s daddr %s tcp dport 80 dnat %s to %s\n", family, c.serviceIPs()[i], family, netip.AddrPortFrom(ip, 80))
	}
	defer rule(t, "inet matrix-service", "chain before { type nat hook prerouting priority dstnat;\n"+rules+"}\n"+
		"chain after { type nat hook postrouting priority srcnat; ct status dnat masquerade\n}")()
	ask()
}

// rule adds a table of nftables to the node, until the returned function is called.
func rule(t *testing.T, table, chains string) (remove func()) {
	t.Helper()
	run(t, hostNamespace, "nft", "table "+table+" {\n"+chains+"\n}")
	return func() { run(t, hostNamespace, "nft", "delete table "+table) }
}

// askService: another pod reaches the guest by its Service.
func askService(t *testing.T, c *cell) string {
	t.Helper()
	if c.kind.apart {
		return answerNone
	}
	c.withService(t, func() { answered(t, "a pod to the guest's Service", c.peer.ns, c.serviceIPs(), 80, "guest") })
	return answerYes
}

// askOwnService: the guest reaches itself by its Service.
func askOwnService(t *testing.T, c *cell) string {
	t.Helper()
	if c.kind.apart {
		return answerNone
	}
	c.withService(t, func() { answered(t, "the guest to its own Service", c.guest.ns, c.serviceIPs(), 80, "guest") })
	return answerYes
}

// askProbe: the node reaches the guest, as the kubelet does.
func askProbe(t *testing.T, c *cell) string {
	t.Helper()
	if c.kind.apart {
		return answerNone
	}
	answered(t, "the node to the guest", hostNamespace, c.reached(c.guest, c.vm), 80, "guest")
	return answerYes
}

// askPolicy: what the node drops by the pod's addresses neither reaches the guest nor comes from it, and the rest passes.
func askPolicy(t *testing.T, c *cell) string {
	t.Helper()
	if c.kind.apart {
		return answerNone
	}
	for _, direction := range []struct {
		name, match, from string
		to                []netip.Addr
	}{
		{"ingress", "daddr", c.peer.ns, c.reached(c.guest, c.vm)},
		{"egress", "saddr", c.guest.ns, c.peers(t)},
	} {
		for i, to := range direction.to {
			family := "ip"
			if to.Is6() {
				family = "ip6"
			}
			chain := fmt.Sprintf("chain forward { type filter hook forward priority 0; %s %s %s tcp dport 81 counter drop\n}",
				family, direction.match, c.reached(c.guest, c.vm)[i])
			removes := []func(){rule(t, "inet matrix-policy", chain), rule(t, "bridge matrix-policy", chain)}
			dropped(t, direction.name, direction.from, netip.AddrPortFrom(to, 81))
			for _, remove := range removes {
				remove()
			}
		}
	}
	answered(t, "a pod to the guest's other port", c.peer.ns, c.reached(c.guest, c.vm), 80, "guest")
	return answerYes
}

// dropped fails the test unless the node drops the packets of a connection.
func dropped(t *testing.T, what, ns string, target netip.AddrPort) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	connected := make(chan error, 1)
	go func() {
		var conn net.Conn
		err := within(ns, func() (err error) {
			conn, err = (&net.Dialer{}).DialContext(ctx, "tcp", target.String())
			return err
		})
		if err == nil {
			_ = conn.Close()
		}
		connected <- err
	}()
	wait.Until(t, what+": packets that the node drops", func() bool {
		for _, table := range []string{"inet", "bridge"} {
			if rules := run(t, hostNamespace, "nft", "list", "table", table, "matrix-policy"); !strings.Contains(rules, "packets 0 ") {
				return true
			}
		}
		return len(connected) > 0
	})
	cancel()
	if err := <-connected; err == nil {
		t.Errorf("%s: %s answers", what, target)
	}
}

// askPlug: the running VM gets a card on another pod's network of the kind, and loses it. The other card stays as it is.
func askPlug(t *testing.T, c *cell) string {
	t.Helper()
	other := c.add(t, "net1")
	before := state(t, other.ns)
	one := c.start(t, idB, Pod{Netns: other.ns, Interfaces: []Interface{{Card: "plugged", Name: other.link}}})
	c.settle(t, one, other)
	serveIn(t, one.ns, ":80", "plugged")
	answered(t, "a pod to the plugged card", c.peer.ns, c.reached(one, other), 80, "plugged")
	answered(t, "the plugged card to a pod", one.ns, c.peers(t), 80, "peer")
	c.undo(t, one.plan)
	same(t, "the plugged card's pod", before, state(t, other.ns))
	answered(t, "a pod to the other card", c.peer.ns, c.reached(c.guest, c.vm), 80, "guest")
	return answerYes
}

// askMove: the guest is reached in another pod, with what its kernel knows, and reaches others.
func askMove(t *testing.T, c *cell) string {
	t.Helper()
	if c.binding == Bridge && !c.kind.static {
		return fixed
	}
	target := c.add(t, c.vm.link)
	pod := c.pod(target)
	if c.binding == Bridge {
		pod.Interfaces[0].MAC = net.HardwareAddr(c.guest.plan.NICs[0].GuestMAC)
	}
	plan, tap := c.await(t, idB, pod)
	c.guest.plan = plan
	c.guest.plugInto(tap)
	if err := c.setup.Announce(t.Context(), plan); err != nil {
		t.Error(err)
	}
	to := target
	if c.kind.static {
		to = c.vm // the address is the guest's
	}
	answered(t, "a pod to the moved guest", c.peer.ns, c.reached(c.guest, to), 80, "guest")
	answered(t, "the moved guest to a pod", c.guest.ns, c.peers(t), 80, "peer")
	return answerYes
}
