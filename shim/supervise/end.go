package supervise

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"golang.org/x/sys/unix"
)

// Wait waits until the process with this id, which [Process.Find] or [Process.Start] returned, has
// ended. The error is that of ctx if ctx ends first. Wait takes no thread meanwhile.
func (p Process) Wait(ctx context.Context, pid int) error {
	handle, err := p.open(pid)
	if err != nil || handle == nil {
		return err
	}
	defer handle.Close()
	return handle.wait(ctx)
}

// End ends the process, with SIGTERM and then with SIGKILL, and returns when it is gone. A process
// that does not run is no error. The pid file stays.
func (p Process) End(ctx context.Context) error {
	pid, err := p.Find()
	if err != nil || pid == 0 {
		return err
	}
	if err := p.end(ctx, pid); err != nil {
		return fmt.Errorf("end %s, process %d: %w", p.Name, pid, err)
	}
	return nil
}

func (p Process) end(ctx context.Context, pid int) error {
	handle, err := p.open(pid)
	if err != nil || handle == nil {
		return err
	}
	defer handle.Close()
	for _, signal := range []unix.Signal{unix.SIGTERM, unix.SIGKILL} {
		err := unix.PidfdSendSignal(handle.fd, signal, nil, 0)
		if errors.Is(err, unix.ESRCH) {
			return nil
		}
		if err != nil {
			return os.NewSyscallError("pidfd_send_signal", err)
		}
		limited, cancel := context.WithTimeout(ctx, p.Grace)
		err = handle.wait(limited)
		cancel()
		if err == nil || ctx.Err() != nil || !errors.Is(err, context.DeadlineExceeded) {
			return err
		}
	}
	return fmt.Errorf("still there %v after SIGKILL", p.Grace)
}

// handle is a pidfd, in the runtime's poller.
type handle struct {
	*os.File
	fd int // of File, which [os.File.Fd] would take out of the poller
}

// open returns nil if the process has ended.
func (p Process) open(pid int) (*handle, error) {
	fd, err := unix.PidfdOpen(pid, unix.PIDFD_NONBLOCK)
	if errors.Is(err, unix.ESRCH) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("watch %s, process %d: %w", p.Name, pid, os.NewSyscallError("pidfd_open", err))
	}
	h := &handle{File: os.NewFile(uintptr(fd), "pidfd"), fd: fd}
	if !p.is(pid) { // it ended, and another process got its id, before the pidfd held it
		h.Close()
		return nil, nil
	}
	return h, nil
}

func (h *handle) wait(ctx context.Context) error { return AwaitEnd(ctx, h.File) }

// AwaitEnd returns when the process of a pidfd, which was opened with PIDFD_NONBLOCK, has ended, as a
// zombie at least. It returns the error of ctx if that ends first. The caller keeps the pidfd.
func AwaitEnd(ctx context.Context, pidfd *os.File) error {
	if err := pidfd.SetReadDeadline(time.Time{}); err != nil { // of an earlier wait
		return err
	}
	stop := context.AfterFunc(ctx, func() { _ = pidfd.SetReadDeadline(time.Now()) })
	defer stop()
	if ctx.Err() != nil {
		return ctx.Err()
	}
	conn, err := pidfd.SyscallConn()
	if err != nil {
		return err
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
	if err != nil && ctx.Err() != nil {
		return ctx.Err()
	}
	return errors.Join(err, pollErr)
}
