package netsetup

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/vishvananda/netlink"
)

// twins makes two pods with the same address on one network, as a CNI plug-in does that moves a
// pod's address, and a client. The second pod is silent from its creation.
func twins(t *testing.T) (source, target, client string) {
	t.Helper()
	conf := func(address string) map[string]any {
		all := map[string]any{
			"cniVersion": "0.4.0", "name": "flat", "type": "bridge", "bridge": "cni4",
			"ipam": map[string]any{"type": "static", "addresses": []map[string]any{{"address": address}}},
		}
		if address == "10.77.4.1/24" {
			all["runtimeConfig"] = map[string]any{"mac": "02:00:00:00:00:42"}
		}
		return all
	}
	t.Cleanup(func() { removeLink(t, "cni4") })
	add := func(id, address string) string {
		pod := newNamespace(t)
		runCNI(t, conf(address), "ADD", id, pod, "eth0")
		t.Cleanup(func() { runCNI(t, conf(address), "DEL", id, pod, "eth0") })
		return pod
	}
	source, client = add("source", "10.77.4.1/24"), add("client", "10.77.4.2/24")
	return source, add("target", "10.77.4.1/24"), client
}

// echo answers each line of each connection with it.
func echo(t *testing.T, ns, address string) {
	t.Helper()
	var l net.Listener
	inPod(t, ns, func(*netlink.Handle) (err error) {
		l, err = net.Listen("tcp", address)
		return err
	})
	t.Cleanup(func() { _ = l.Close() })
	go func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			go func() { defer conn.Close(); _, _ = io.Copy(conn, conn) }()
		}
	}()
}

// TestMoveOfAPodsAddress: a connection to a guest with its pod's address survives the move to a pod
// with the same address. Neither pod answers in the guest's place.
func TestMoveOfAPodsAddress(t *testing.T) {
	n := newNode(t)
	source, target, client := twins(t)
	on := func(pod string) Pod { return Pod{Netns: pod, Silent: true} }
	m := n.start(t, idA, on(source))
	run(t, m.ns, "ip", "addr", "add", "10.77.4.1/24", "dev", card)
	echo(t, m.ns, "10.77.4.1:80")
	if err := n.setup.Silence(t.Context(), target, podInterface); err != nil {
		t.Fatal(err)
	}
	conn, err := dial(t, client, "10.77.4.1:80")
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	lines := bufio.NewReader(conn)
	lives := func(when string) {
		t.Helper()
		_ = conn.SetDeadline(time.Now().Add(time.Minute))
		_, err := fmt.Fprintln(conn, when)
		got, readErr := lines.ReadString('\n')
		if strings.TrimSpace(got) != when || err != nil || readErr != nil {
			t.Fatalf("%s the connection answers %q, %v, %v", when, got, err, readErr)
		}
	}
	lives("before")

	// The target's own stack has the address, until its VM starts.
	resolves := func(when string) {
		t.Helper()
		run(t, client, "ip", "neigh", "flush", "all")
		again, err := dial(t, client, "10.77.4.1:80")
		if err != nil {
			t.Fatalf("%s the guest's address answers a new connection: %v", when, err)
		}
		_ = again.Close()
		lives(when)
	}
	resolves("beside a silent pod")
	plan, tap := n.await(t, idB, on(target))
	resolves("beside a pod that waits")

	m.plan, plan = plan, m.plan // the source's
	m.plugInto(tap)
	header := make([]byte, 10) // of virtio
	if _, err := tap.Write(append(header, newVillain(m.plan.NICs[0]).Honest()["RARP of a migration"]...)); err != nil {
		t.Fatal(err)
	}
	n.undo(t, plan)
	if got := run(t, source, "ip", "addr", "show", "eth0"); !strings.Contains(got, "10.77.4.1") {
		t.Fatalf("the source's pod has %s", got)
	}
	lives("after the move")
	resolves("beside the source's pod")
}

// TestSilence: a pod's own stack neither sends nor receives, and its processes still use loopback.
func TestSilence(t *testing.T) {
	n := newNode(t)
	pod := n.addPod(t)
	serveIn(t, pod, ":80", "pod")
	if got := ask(t, hostNamespace, "10.88.1.2:80"); got != "pod" {
		t.Fatalf("the pod answers %q", got)
	}
	for range 2 {
		if err := n.setup.Silence(t.Context(), pod, podInterface); err != nil {
			t.Fatal(err)
		}
	}
	if got := ask(t, pod, "127.0.0.1:80"); got != "pod" {
		t.Errorf("on loopback the pod answers %q", got)
	}
	run(t, hostNamespace, "ip", "neigh", "flush", "all")
	var conn net.Conn
	var err error
	_ = within(hostNamespace, func() error {
		conn, err = net.DialTimeout("tcp", "10.88.1.2:80", 4*time.Second)
		return nil
	})
	if err == nil {
		_ = conn.Close()
		t.Error("the pod answers")
	}
	if got := run(t, hostNamespace, "ip", "neigh", "show", "10.88.1.2"); strings.Contains(got, "REACHABLE") {
		t.Errorf("the pod answers ARP: %s", got)
	}
}

// TestNodeAddresses: nodes receive guests at their own addresses alone, on few ports.
func TestNodeAddresses(t *testing.T) {
	newNode(t)
	run(t, hostNamespace, "ip", "link", "set", "lo", "up")
	run(t, hostNamespace, "ip", "addr", "replace", "10.92.0.1/32", "dev", "lo")
	t.Cleanup(func() { run(t, hostNamespace, "ip", "addr", "del", "10.92.0.1/32", "dev", "lo") })
	own := netip.MustParseAddr("10.92.0.1")
	var first, second net.Listener
	inNamespace := func(do func() error) {
		t.Helper()
		if err := within(hostNamespace, do); err != nil {
			t.Fatal(err)
		}
	}
	inNamespace(func() (err error) {
		first, err = ListenNode(t.Context(), own)
		return err
	})
	defer first.Close()
	inNamespace(func() (err error) {
		second, err = ListenNode(t.Context(), own)
		return err
	})
	defer second.Close()
	if first.Addr().String() != "10.92.0.1:49152" || second.Addr().String() != "10.92.0.1:49153" {
		t.Errorf("listening on %s and %s", first.Addr(), second.Addr())
	}
	inNamespace(func() error {
		conn, err := DialNode(t.Context(), netip.MustParseAddrPort("10.92.0.1:49153"))
		if err == nil {
			_ = conn.Close()
		}
		return err
	})
	for _, to := range []string{"127.0.0.1:49152", "[::1]:49152", "169.254.169.254:49152", "224.0.0.1:49152", "[::ffff:10.92.0.1]:49152", "10.92.0.1:22"} {
		if _, err := DialNode(t.Context(), netip.MustParseAddrPort(to)); !errors.Is(err, ErrNodeAddress) {
			t.Errorf("%s: %v", to, err)
		}
	}
	if _, err := ListenNode(t.Context(), netip.MustParseAddr("127.0.0.1")); !errors.Is(err, ErrNodeAddress) {
		t.Errorf("loopback: %v", err)
	}
}
