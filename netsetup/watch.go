package netsetup

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"golang.org/x/sys/unix"
)

// Watch waits until the machine's dnsmasq has ended, or ctx has, and tells
// which: the error is nil when dnsmasq is gone, and when there was none. The
// caller starts it again with [Setup.Serve]; the guest's lease, which never
// expires, stands. Waiting takes no thread.
func (s *Setup) Watch(ctx context.Context, p Plan) error {
	pid, err := s.findServer(p)
	if err != nil || pid == 0 {
		return err
	}
	fd, err := unix.PidfdOpen(pid, unix.PIDFD_NONBLOCK)
	if errors.Is(err, unix.ESRCH) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("watch dnsmasq %d: %w", pid, os.NewSyscallError("pidfd_open", err))
	}
	process := os.NewFile(uintptr(fd), "pidfd")
	defer process.Close()
	if !s.isServer(pid, p) {
		return nil
	}
	return waitReadable(ctx, process)
}

// waitReadable waits in the runtime's poller: a pidfd becomes readable when its
// process ends.
func waitReadable(ctx context.Context, f *os.File) error {
	stop := context.AfterFunc(ctx, func() { _ = f.SetReadDeadline(time.Now()) })
	defer stop()
	conn, err := f.SyscallConn()
	if err != nil {
		return fmt.Errorf("watch a process: %w", err)
	}
	var pollErr error
	err = conn.Read(func(fd uintptr) bool {
		n, err := unix.Poll([]unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}, 0)
		if err != nil && !errors.Is(err, unix.EINTR) {
			pollErr = os.NewSyscallError("poll", err)
			return true
		}
		return n > 0
	})
	if ctx.Err() != nil {
		return ctx.Err()
	}
	return errors.Join(err, pollErr)
}
