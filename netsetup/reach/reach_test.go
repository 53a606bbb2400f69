package reach_test

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/nodevirt/nodevirt/netsetup/reach"
	"github.com/nodevirt/nodevirt/test/needs"
	"github.com/nodevirt/nodevirt/test/wait"
)

// The users of VMs, and one of them.
const (
	first, last = 64000, 64009
	uid         = 64003
)

// inside is set in the test process that has a separate network namespace.
const inside = "NODEVIRT_TEST_REACH"

// alone runs a test in a process that has a separate network namespace, and reports whether this is it.
func alone(t *testing.T) bool {
	t.Helper()
	needs.Parts(t, "root, nft")
	if os.Getenv(inside) != "" {
		run(t, "ip", "link", "set", "lo", "up")
		return true
	}
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	runtime.LockOSThread() // with the thread the process would end
	defer runtime.UnlockOSThread()
	cmd := exec.CommandContext(t.Context(), self, "-test.v", "-test.run=^"+t.Name()+"$")
	cmd.Env = append(os.Environ(), inside+"=1")
	cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWNET, Pdeathsig: syscall.SIGKILL}
	out, err := cmd.CombinedOutput()
	t.Logf("%s", out)
	if err != nil {
		t.Error(err)
	}
	return false
}

func run(t *testing.T, name string, args ...string) {
	t.Helper()
	if out, err := exec.CommandContext(t.Context(), name, args...).CombinedOutput(); err != nil {
		t.Fatalf("%s %q: %v: %s", name, args, err, out)
	}
}

// as calls do in a thread whose sockets are a user's.
func as(uid int, do func() error) error {
	done := make(chan error)
	go func() {
		runtime.LockOSThread() // never unlocked: the thread ends
		if err := unix.Setfsuid(uid); err != nil {
			done <- err
			return
		}
		done <- do()
	}()
	return <-done
}

// connect connects a TCP socket of a user to an address.
func connect(uid int, to netip.AddrPort) error { return try(uid, unix.SOCK_STREAM, to) }

// send sends a UDP packet of a user to an address.
func send(uid int, to netip.AddrPort) error { return try(uid, unix.SOCK_DGRAM, to) }

func try(uid, kind int, to netip.AddrPort) error {
	return as(uid, func() error {
		family, address := unix.AF_INET6, unix.Sockaddr(&unix.SockaddrInet6{Port: int(to.Port()), Addr: to.Addr().As16()})
		if to.Addr().Is4() {
			family, address = unix.AF_INET, &unix.SockaddrInet4{Port: int(to.Port()), Addr: to.Addr().As4()}
		}
		fd, err := unix.Socket(family, kind, 0)
		if err != nil {
			return err
		}
		defer func() { _ = unix.Close(fd) }()
		if err := unix.SetsockoptTimeval(fd, unix.SOL_SOCKET, unix.SO_SNDTIMEO, &unix.Timeval{Sec: 5}); err != nil {
			return err
		}
		if err := unix.Connect(fd, address); err != nil && !errors.Is(err, unix.EINTR) {
			return err
		} else if err != nil {
			// A signal of Go's runtime: the connection goes on, see connect(2).
			if err := connected(fd); err != nil {
				return err
			}
		}
		for {
			if _, err = unix.Write(fd, []byte("x")); !errors.Is(err, unix.EINTR) {
				return err
			}
		}
	})
}

// connected waits for the result of an interrupted connect.
func connected(fd int) error {
	for end := time.Now().Add(5 * time.Second); time.Now().Before(end); {
		n, err := unix.Poll([]unix.PollFd{{Fd: int32(fd), Events: unix.POLLOUT}}, 100)
		if err != nil && !errors.Is(err, unix.EINTR) {
			return err
		}
		if n == 0 || err != nil {
			continue
		}
		number, err := unix.GetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_ERROR)
		if err == nil && number != 0 {
			err = syscall.Errno(number)
		}
		return err
	}
	return unix.ETIMEDOUT
}

func listen(t *testing.T, address string) netip.AddrPort {
	t.Helper()
	l, err := net.Listen("tcp", address)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	return l.Addr().(*net.TCPAddr).AddrPort()
}

func newFilter(t *testing.T) *reach.Filter {
	return reach.New(reach.Options{FirstUID: first, LastUID: last, CheckEvery: 100 * time.Millisecond, Logger: slog.New(slog.NewTextHandler(t.Output(), nil))})
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// TestReach: a process of a VM's user reaches its portals, and nothing else.
func TestReach(t *testing.T) {
	if !alone(t) {
		return
	}
	run(t, "ip", "address", "add", "192.0.2.1/24", "dev", "lo")
	run(t, "ip", "address", "add", "2001:db8::1/64", "dev", "lo", "nodad")
	var all []netip.AddrPort
	for _, address := range []string{"127.0.0.1:0", "[::1]:0", "192.0.2.1:0", "[2001:db8::1]:0"} {
		all = append(all, listen(t, address))
	}
	// reaches are the addresses, of all, that a user connects to.
	reaches := func(uid int) (reached []netip.AddrPort) {
		for _, to := range all {
			if connect(uid, to) == nil {
				reached = append(reached, to)
			}
		}
		return reached
	}
	want := func(uid int, want ...netip.AddrPort) {
		t.Helper()
		got := reaches(uid)
		for i, to := range got {
			if len(got) != len(want) || to != want[i] {
				t.Errorf("user %d reaches %v; want %v", uid, got, want)
				return
			}
		}
		if len(got) != len(want) {
			t.Errorf("user %d reaches %v; want %v", uid, got, want)
		}
	}
	// Without the table. The kernel uses an IPv6 address a moment after it was added.
	wait.Until(t, "the user to reach all addresses", func() bool { return len(reaches(uid)) == len(all) })

	f := newFilter(t)
	must(t, f.Restore(t.Context(), map[uint32][]netip.AddrPort{uid + 1: {all[3]}}, func(uint32) bool { return false }))
	must(t, f.Allow(t.Context(), uid, []netip.AddrPort{netip.AddrPortFrom(netip.AddrFrom16(all[0].Addr().As16()), all[0].Port()), all[1]}))
	want(uid, all[:2]...)
	want(uid+1, all[3])
	for _, other := range []int{first, last} {
		want(other)
	}
	for _, ordinary := range []int{0, first - 1, last + 1} {
		want(ordinary, all...)
	}
	for _, to := range all {
		if err := send(uid, to); !errors.Is(err, unix.EPERM) {
			t.Errorf("UDP to %v: %v", to, err)
		}
	}
	// A server of such a process does not answer.
	var server int
	must(t, as(uid, func() (err error) {
		server, err = unix.Socket(unix.AF_INET, unix.SOCK_STREAM, 0)
		return errors.Join(err, unix.Bind(server, &unix.SockaddrInet4{Port: 4444}), unix.Listen(server, 1))
	}))
	if err := connect(0, netip.MustParseAddrPort("127.0.0.1:4444")); err == nil {
		t.Error("a VM's process is a server on the node")
	}
	_ = unix.Close(server)

	must(t, f.Allow(t.Context(), uid, all[1:2]))
	want(uid, all[1])
	must(t, f.Allow(t.Context(), uid, nil))
	want(uid)
	want(uid+1, all[3])
}

// TestRestore: what a shim before this one allowed stays for VMs that run, and goes for others.
func TestRestore(t *testing.T) {
	if !alone(t) {
		return
	}
	old, moved := listen(t, "127.0.0.1:0"), listen(t, "127.0.0.1:0")
	before := newFilter(t)
	for _, one := range []uint32{uid, uid + 1} {
		must(t, before.Allow(t.Context(), one, []netip.AddrPort{old}))
	}
	after := newFilter(t)
	must(t, after.Restore(t.Context(), map[uint32][]netip.AddrPort{uid: {moved}}, func(one uint32) bool { return one == uid }))
	if err := errors.Join(connect(uid, old), connect(uid, moved)); err != nil {
		t.Error(err)
	}
	if connect(uid+1, old) == nil {
		t.Error("a VM that is gone still reaches its portal")
	}
	// Another program removes all tables.
	run(t, "nft", "flush", "ruleset")
	if err := reach.Check(t.Context(), first, last); err == nil || !strings.Contains(err.Error(), reach.Table) {
		t.Errorf("without the table: %v", err)
	}
	must(t, after.Allow(t.Context(), uid+2, []netip.AddrPort{old}))
	must(t, reach.Check(t.Context(), first, last))
	if reach.Check(t.Context(), first, last+1) == nil {
		t.Error("the table covers too few users, and Check does not say so")
	}
	if connect(uid+1, old) == nil || connect(uid, old) != nil || connect(uid+2, old) != nil {
		t.Error("the table came back with other portals")
	}
}

// TestWatch: the table comes back by itself.
func TestWatch(t *testing.T) {
	if !alone(t) {
		return
	}
	f := newFilter(t)
	must(t, f.Allow(t.Context(), uid, nil))
	run(t, "nft", "flush", "ruleset")
	ctx, cancel := context.WithCancel(t.Context())
	var watch sync.WaitGroup
	defer watch.Wait() // it writes to the test's log
	defer cancel()
	watch.Go(func() { f.Watch(ctx) })
	for end := time.Now().Add(time.Minute); reach.Check(t.Context(), first, last) != nil; time.Sleep(100 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatal("the table stays away")
		}
	}
}

// TestWithoutNft: no VM may start where its reach can't be limited.
func TestWithoutNft(t *testing.T) {
	t.Setenv("PATH", t.TempDir())
	f := newFilter(t)
	for range 2 {
		if err := f.Allow(t.Context(), uid, nil); err == nil || !strings.Contains(err.Error(), "limit the network reach") {
			t.Errorf("without nft: %v", err)
		}
	}
}

// TestNetworks: a user with a portal in a network of storage reaches all of it, and another user does not.
func TestNetworks(t *testing.T) {
	if !alone(t) {
		return
	}
	for _, address := range []string{"10.7.0.1/24", "10.7.0.2/24", "10.8.0.1/24"} {
		run(t, "ip", "address", "add", address, "dev", "lo")
	}
	monitor, osd, other := listen(t, "10.7.0.1:0"), listen(t, "10.7.0.2:0"), listen(t, "10.8.0.1:0")
	f := reach.New(reach.Options{
		FirstUID: first, LastUID: last, Networks: []netip.Prefix{netip.MustParsePrefix("10.7.0.0/24"), netip.MustParsePrefix("fd07::/64")},
		CheckEvery: time.Second, Logger: slog.New(slog.NewTextHandler(t.Output(), nil)),
	})
	must(t, f.Restore(t.Context(), map[uint32][]netip.AddrPort{first: {other}}, func(uint32) bool { return false }))
	for range 2 { // and after the table was loaded whole
		must(t, f.Allow(t.Context(), uid, []netip.AddrPort{monitor}))
		for to, want := range map[netip.AddrPort]bool{monitor: true, osd: true, other: false} {
			if err := connect(uid, to); (err == nil) != want {
				t.Errorf("%s: %v", to, err)
			}
		}
		if err := connect(first, osd); err == nil {
			t.Error("a user without a portal there reaches the network")
		}
		must(t, f.Restore(t.Context(), nil, func(uint32) bool { return true }))
	}
	must(t, f.Allow(t.Context(), uid, nil))
	if err := connect(uid, osd); err == nil {
		t.Error("the user reaches the network without a portal")
	}
}

// TestRemove: nothing is left of the table, and there may be none.
func TestRemove(t *testing.T) {
	if !alone(t) {
		return
	}
	must(t, reach.Remove(t.Context()))
	must(t, newFilter(t).Restore(t.Context(), nil, func(uint32) bool { return false }))
	must(t, reach.Check(t.Context(), first, last))
	must(t, reach.Remove(t.Context()))
	if out, err := exec.CommandContext(t.Context(), "nft", "list", "tables").CombinedOutput(); err != nil || len(out) > 0 {
		t.Errorf("%v; the tables are %s", err, out)
	}
}
