package domain

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"golang.org/x/sys/unix"
)

// AwaitEnd returns when the QEMU of a domain, which has this process id, has ended,
// or at once if another process has the id now. It does not need libvirtd, which
// sends no event for a QEMU that ended while libvirtd did not run.
func (p *Processes) AwaitEnd(ctx context.Context, name string, pid int) error {
	f, err := openProcess(pid)
	if errors.Is(err, unix.ESRCH) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("watch QEMU of domain %s: %w", name, err)
	}
	defer f.Close()
	if args, err := readCmdline(pid); err != nil || !isGuest(args, name) {
		return nil
	}
	defer context.AfterFunc(ctx, func() { _ = f.SetReadDeadline(time.Unix(1, 0)) })()
	if err := awaitEnd(f); err != nil {
		if ctx.Err() != nil {
			err = context.Cause(ctx)
		}
		return fmt.Errorf("watch QEMU of domain %s: %w", name, err)
	}
	return nil
}

// openProcess opens a descriptor that is readable when the process has ended.
func openProcess(pid int) (*os.File, error) {
	fd, err := unix.PidfdOpen(pid, 0)
	if err != nil {
		return nil, err
	}
	if err := unix.SetNonblock(fd, true); err != nil { // for Go's poller
		_ = unix.Close(fd)
		return nil, err
	}
	return os.NewFile(uintptr(fd), fmt.Sprintf("process %d", pid)), nil
}

func awaitEnd(f *os.File) error {
	raw, err := f.SyscallConn()
	if err != nil {
		return err
	}
	var failed error
	err = raw.Read(func(fd uintptr) (done bool) {
		var n int
		n, failed = unix.Poll([]unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}, 0)
		return n > 0 || failed != nil && !errors.Is(failed, unix.EINTR)
	})
	return errors.Join(err, failed)
}
