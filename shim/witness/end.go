package witness

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"golang.org/x/sys/unix"

	"github.com/nodevirt/nodevirt/shim/supervise"
)

// endTime is how long QEMU may take to end after SIGTERM, on which it closes its disks, and after SIGKILL.
const endTime = 5 * time.Second

// End ends the QEMU of a VM, which libvirt may not know, and returns when the process is gone: by SIGTERM,
// and after five seconds by SIGKILL. A VM without a QEMU is no error.
func (n Node) End(ctx context.Context, id Identity) error {
	all, err := n.Processes()
	if err != nil {
		return err
	}
	for _, p := range all {
		if !p.Is(id) {
			continue
		}
		if err := n.end(ctx, p, id); err != nil {
			return fmt.Errorf("end QEMU, process %d, of container %s: %w", p.PID, id.Container, err)
		}
	}
	return nil
}

// AwaitEnd returns when a process has ended, or when another one has its ID.
func (n Node) AwaitEnd(ctx context.Context, p Process) error {
	held, err := n.hold(p.PID, func(now Process) bool { return now.UID == p.UID && now.Container == p.Container })
	if err != nil || held == nil {
		return err
	}
	defer held.Close()
	return supervise.AwaitEnd(ctx, held)
}

func (n Node) end(ctx context.Context, p Process, id Identity) error {
	held, err := n.hold(p.PID, func(now Process) bool { return now.Is(id) })
	if err != nil || held == nil {
		return err
	}
	defer held.Close()
	for _, signal := range []unix.Signal{unix.SIGTERM, unix.SIGKILL} {
		if err := send(held, signal); err != nil {
			return err
		}
		limited, cancel := context.WithTimeout(ctx, endTime)
		err := supervise.AwaitEnd(limited, held)
		cancel()
		if err == nil || ctx.Err() != nil || !errors.Is(err, context.DeadlineExceeded) {
			return err
		}
	}
	return fmt.Errorf("it is still there %v after SIGKILL: it waits for a disk or a device that does not answer", endTime)
}

// hold opens a pidfd of a process that is still the one that is meant, and returns nil if it is not.
func (n Node) hold(pid int, meant func(Process) bool) (*os.File, error) {
	fd, err := unix.PidfdOpen(pid, unix.PIDFD_NONBLOCK)
	if errors.Is(err, unix.ESRCH) {
		return nil, nil
	}
	if err != nil {
		return nil, os.NewSyscallError("pidfd_open", err)
	}
	held := os.NewFile(uintptr(fd), "pidfd")
	now, there, err := n.read(pid)
	if err != nil || !there || !meant(now) {
		return nil, errors.Join(err, held.Close())
	}
	return held, nil
}

// send sends a signal to the process of a pidfd. One that has ended is no error.
func send(held *os.File, signal unix.Signal) error {
	conn, err := held.SyscallConn()
	if err != nil {
		return err
	}
	var failed error
	err = conn.Control(func(fd uintptr) { failed = unix.PidfdSendSignal(int(fd), signal, nil, 0) })
	if errors.Is(failed, unix.ESRCH) {
		failed = nil
	}
	return errors.Join(err, os.NewSyscallError("pidfd_send_signal", failed))
}
