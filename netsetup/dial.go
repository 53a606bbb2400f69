package netsetup

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

const (
	// dialTime is how long Dial may take.
	dialTime = 10 * time.Second
	// headStart is how long Dial waits for an address before it also tries the next.
	headStart = time.Second
)

// Dial connects to a TCP port of a VM's pod, from inside the pod's network namespace. It
// tries the guest's addresses in order, and then loopback, for a port of another container
// of the pod. If an address does not answer at once, as behind a firewall, Dial also tries
// the next and takes the first that answers. The error names each address.
func Dial(ctx context.Context, netns string, guest []netip.Addr, port uint16) (*net.TCPConn, error) {
	if err := checkNetns(netns); err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeoutCause(ctx, dialTime, errors.New("no answer"))
	defer cancel()
	targets := append(slices.Clip(guest), netip.AddrFrom4([4]byte{127, 0, 0, 1}), netip.IPv6Loopback())
	answers := make(chan answer)
	var failed []string
	for started, waiting := 0, 0; ; {
		if started < len(targets) {
			to := netip.AddrPortFrom(targets[started], port)
			go func() { answers <- dialOne(ctx, netns, to) }()
			started, waiting = started+1, waiting+1
		}
		var next <-chan time.Time
		if started < len(targets) {
			next = time.After(headStart)
		}
		select {
		case a := <-answers:
			waiting--
			if a.err == nil {
				go drop(answers, waiting)
				return a.conn, nil
			}
			failed = append(failed, a.err.Error())
			if started == len(targets) && waiting == 0 {
				return nil, fmt.Errorf("connect to port %d of the pod: %s", port, strings.Join(failed, "; "))
			}
		case <-next:
		}
	}
}

type answer struct {
	conn *net.TCPConn
	err  error
}

// drop closes the connections of n late answers. Their context has ended.
func drop(answers <-chan answer, n int) {
	for range n {
		if a := <-answers; a.conn != nil {
			_ = a.conn.Close()
		}
	}
}

func dialOne(ctx context.Context, netns string, to netip.AddrPort) answer {
	conn, err := dialWithin(ctx, netns, to)
	if err != nil {
		err = fmt.Errorf("dial tcp %s: %w", to, err)
	}
	return answer{conn, err}
}

// dialWithin connects from inside a namespace. It needs a thread in there only to create the
// socket, which stays in the namespace.
func dialWithin(ctx context.Context, netns string, to netip.AddrPort) (*net.TCPConn, error) {
	family, address := sockaddr(to)
	var fd int
	err := within(netns, func() (err error) {
		fd, err = unix.Socket(family, unix.SOCK_STREAM|unix.SOCK_NONBLOCK|unix.SOCK_CLOEXEC, unix.IPPROTO_TCP)
		return err
	})
	if err != nil {
		return nil, err
	}
	f := os.NewFile(uintptr(fd), "tcp "+to.String())
	defer f.Close() // net.FileConn has a copy
	if err := connectSocket(ctx, f, address); err != nil {
		return nil, err
	}
	conn, err := net.FileConn(f)
	if err != nil {
		return nil, err
	}
	return conn.(*net.TCPConn), nil
}

func sockaddr(to netip.AddrPort) (family int, address unix.Sockaddr) {
	if to.Addr().Is4() {
		return unix.AF_INET, &unix.SockaddrInet4{Addr: to.Addr().As4(), Port: int(to.Port())}
	}
	return unix.AF_INET6, &unix.SockaddrInet6{Addr: to.Addr().As16(), Port: int(to.Port())}
}

// connectSocket connects a non-blocking socket. It waits in Go's poller, without a thread.
func connectSocket(ctx context.Context, f *os.File, to unix.Sockaddr) error {
	raw, err := f.SyscallConn()
	if err != nil {
		return err
	}
	defer context.AfterFunc(ctx, func() { _ = f.SetDeadline(time.Unix(1, 0)) })() // a time in the past
	began, result := false, error(nil)
	err = raw.Write(func(fd uintptr) bool {
		if !began {
			began = true
			result = unix.Connect(int(fd), to)
			return !errors.Is(result, unix.EINPROGRESS)
		}
		code, err := unix.GetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_ERROR)
		if result = err; err == nil && code != 0 {
			result = unix.Errno(code)
		}
		if result != nil {
			return true
		}
		// The poller may wake early: a socket is writable before it begins to connect.
		_, err = unix.Getpeername(int(fd))
		return err == nil
	})
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	return errors.Join(err, result)
}
