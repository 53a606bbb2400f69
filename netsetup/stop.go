package netsetup

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"golang.org/x/sys/unix"
)

// killAfter is how long dnsmasq has to end by itself: it has nothing to save.
const killAfter = 2 * time.Second

// stop ends the machine's dnsmasq, waits until it is gone, and removes its folder.
func (s *Setup) stop(ctx context.Context, p Plan) error {
	pid, err := s.findServer(p)
	if err != nil {
		return err
	}
	if pid != 0 {
		if err := s.stopServer(ctx, pid, p); err != nil {
			return fmt.Errorf("end dnsmasq %d: %w", pid, err)
		}
	}
	if err := os.RemoveAll(s.folder(p)); err != nil {
		return fmt.Errorf("remove folder of dnsmasq: %w", err)
	}
	return nil
}

func (s *Setup) stopServer(ctx context.Context, pid int, p Plan) error {
	fd, err := unix.PidfdOpen(pid, 0)
	if errors.Is(err, unix.ESRCH) {
		return nil
	}
	if err != nil {
		return os.NewSyscallError("pidfd_open", err)
	}
	defer unix.Close(fd)
	if !s.isServer(pid, p) { // it ended, and the number went to another, before we held it
		return nil
	}
	for _, signal := range []unix.Signal{unix.SIGTERM, unix.SIGKILL} {
		err := unix.PidfdSendSignal(fd, signal, nil, 0)
		if errors.Is(err, unix.ESRCH) {
			return nil
		}
		if err != nil {
			return os.NewSyscallError("pidfd_send_signal", err)
		}
		if gone, err := waitEnd(ctx, fd, killAfter); err != nil || gone {
			return err
		}
	}
	return errors.New("it does not end")
}

// waitEnd waits until the process of a pidfd has ended, as a zombie at least.
func waitEnd(ctx context.Context, fd int, limit time.Duration) (bool, error) {
	const slice = 50 * time.Millisecond // between looks at ctx
	deadline := time.Now().Add(limit)
	for time.Now().Before(deadline) {
		if err := ctx.Err(); err != nil {
			return false, err
		}
		n, err := unix.Poll([]unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}},
			int(slice.Milliseconds()))
		if err != nil && !errors.Is(err, unix.EINTR) {
			return false, os.NewSyscallError("poll", err)
		}
		if n > 0 {
			return true, nil
		}
	}
	return false, nil
}
