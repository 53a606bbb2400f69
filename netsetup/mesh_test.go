package netsetup

import (
	"io"
	"net"
	"net/netip"
	"testing"

	"github.com/vishvananda/netlink"
)

// TestMeshSeesConnectionsFirst: a mesh's rule sends the pod's connections to its proxy, whether it was there before the guest or not.
// The proxy passes them to the pod's address, from a loopback address, and the guest answers.
func TestMeshSeesConnectionsFirst(t *testing.T) {
	n := newNode(t)
	for _, ports := range [][]Port{nil, {{"tcp", 80, 0}}} {
		pod := n.addPod(t)
		run(t, pod, "nft", `table ip mesh { chain inbound { type nat hook prerouting priority dstnat; tcp dport 80 redirect to :15006; }; }`)
		before := state(t, pod)
		m := n.start(t, idA, masqueraded(pod, ports...))
		m.configure(t, m.dhcp(t, "system"))
		m.serve(t, "guest")
		address := m.plan.PodIPs()[0]
		meshProxy(t, pod, netip.AddrPortFrom(address, 80).String())
		if got := ask(t, hostNamespace, netip.AddrPortFrom(address, 80).String()); got != "proxy: guest" {
			t.Errorf("with ports %v the pod's address answers %q, want the proxy's answer", ports, got)
		}
		n.undo(t, m.plan)
		same(t, "pod", before, state(t, pod))
	}
}

// meshProxy answers connections to port 15006 of a pod with what an address answers to it.
func meshProxy(t *testing.T, pod, to string) {
	t.Helper()
	var l net.Listener
	inPod(t, pod, func(*netlink.Handle) (err error) {
		l, err = net.Listen("tcp", ":15006")
		return err
	})
	t.Cleanup(func() { l.Close() })
	go func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			_ = within(pod, func() error {
				from := net.Dialer{LocalAddr: &net.TCPAddr{IP: net.IPv4(127, 0, 0, 6)}}
				guest, err := from.DialContext(t.Context(), "tcp", to)
				if err == nil {
					_, _ = io.WriteString(conn, "proxy: ")
					_, _ = io.Copy(conn, guest)
					guest.Close()
				}
				return err
			})
			conn.Close()
		}
	}()
}
