package badinput

import (
	"errors"
	"fmt"
	"net"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"github.com/vishvananda/netns"
	"google.golang.org/grpc/codes"
	"gotest.tools/v3/assert"
)

// startCases come to light when the machine is to start.
func startCases() []badCase {
	return []badCase{
		{
			name: "CPU model that QEMU does not know", at: atStart, code: codes.InvalidArgument,
			pod: vmi(`"cpu":{"model":"i8080"}`, ""),
		},
		{
			name: "CPU feature that QEMU does not know", at: atStart, code: codes.InvalidArgument,
			pod: vmi(`"cpu":{"features":[{"name":"magic"}]}`, ""),
		},
		{
			name: "machine that QEMU does not know", at: atStart, code: codes.InvalidArgument,
			pod: vmi(`"machine":{"type":"pc-q35-99.9"}`, ""),
		},
		{
			name: "pod without an address", at: atStart, code: codes.FailedPrecondition,
			before: withoutAddress,
		},
		{
			name: "another DHCP server in the pod", at: atStart, code: codes.FailedPrecondition,
			before: withDHCPServer,
		},
	}
}

// withoutAddress leaves the pod as a CNI configuration without IPAM does.
func withoutAddress(t *testing.T, s *suite, p *pod) (undo func()) {
	t.Helper()
	within := func(args ...string) string {
		t.Helper()
		args = append([]string{"--net=" + s.namespace(t, p), "ip"}, args...)
		out, err := s.n.Output(t.Context(), "nsenter", args...)
		assert.NilError(t, err)
		return out
	}
	address := strings.Fields(within("-4", "-o", "address", "show", "dev", "eth0"))[3]
	within("address", "flush", "dev", "eth0")
	return func() { within("address", "add", address, "dev", "eth0") }
}

// withDHCPServer takes the port that dnsmasq needs, as a sidecar might.
func withDHCPServer(t *testing.T, s *suite, p *pod) (undo func()) {
	t.Helper()
	path := fmt.Sprintf("/proc/%d/root%s", s.n.PID(), s.namespace(t, p))
	type result struct {
		conn net.PacketConn
		err  error
	}
	done := make(chan result)
	go func() {
		runtime.LockOSThread() // for good: the thread ends with the goroutine
		conn, err := listenWithin(path)
		done <- result{conn, err}
	}()
	r := <-done
	if r.err != nil {
		t.Fatal(r.err)
	}
	return func() { _ = r.conn.Close() }
}

func listenWithin(path string) (conn net.PacketConn, err error) {
	ns, err := netns.GetFromPath(path)
	if err != nil {
		return nil, fmt.Errorf("find network namespace: %w", err)
	}
	defer func() { err = errors.Join(err, ns.Close()) }()
	if err := netns.Set(ns); err != nil {
		return nil, fmt.Errorf("enter network namespace: %w", err)
	}
	return net.ListenPacket("udp4", ":67")
}

// namespace is the path of the pod's network namespace, as the node sees it. The pod is the only one.
func (s *suite) namespace(t *testing.T, p *pod) string {
	t.Helper()
	found, err := filepath.Glob(fmt.Sprintf("/proc/%d/root/run/netns/*", s.n.PID()))
	if err != nil || len(found) != 1 {
		t.Fatalf("network namespace of pod %s: %v, %v", p.id, found, err)
	}
	return "/run/netns/" + filepath.Base(found[0])
}
