package witness

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/nodevirt/nodevirt/shim/supervise"
)

// endTime is how long QEMU may take to end after SIGTERM, on which it closes its disks, and after SIGKILL. It is for
// all processes of a call together.
const endTime = 5 * time.Second

// End ends the QEMU of a VM, which libvirt may not know, and returns when the process is gone: by SIGTERM,
// and after five seconds by SIGKILL. A VM without a QEMU is no error.
func (n Node) End(ctx context.Context, id Identity) error {
	all, err := n.Processes()
	if err != nil {
		return err
	}
	var left []held
	defer func() {
		for _, h := range left {
			_ = h.Close()
		}
	}()
	for _, p := range all {
		if !p.Is(id) {
			continue
		}
		fd, err := n.hold(p.PID, func(now Process) bool { return now.Is(id) })
		if err != nil {
			return fmt.Errorf("end QEMU, process %d, of container %s: %w", p.PID, id.Container, err)
		}
		if fd != nil {
			left = append(left, held{fd, p.PID})
		}
	}
	for _, signal := range []unix.Signal{unix.SIGTERM, unix.SIGKILL} {
		if left, err = endAll(ctx, left, signal); err != nil || len(left) == 0 {
			break
		}
	}
	if err == nil && len(left) > 0 {
		err = fmt.Errorf("it is still there %v after SIGKILL: it waits for a disk or a device that does not answer", endTime)
	}
	if err != nil {
		return fmt.Errorf("end QEMU, process %s, of container %s: %w", numbers(left), id.Container, err)
	}
	return nil
}

// held is a pidfd, and the number that the process has.
type held struct {
	*os.File
	pid int
}

func numbers(all []held) string {
	var text []string
	for _, h := range all {
		text = append(text, strconv.Itoa(h.pid))
	}
	return strings.Join(text, ", ")
}

// endAll sends a signal to processes, waits for them together, and returns those that are still there. It closes the
// others.
func endAll(ctx context.Context, all []held, signal unix.Signal) (left []held, err error) {
	for _, h := range all {
		if err := send(h.File, signal); err != nil {
			return all, err
		}
	}
	limited, cancel := context.WithTimeout(ctx, endTime)
	defer cancel()
	ends := make([]error, len(all))
	var waits sync.WaitGroup
	for i, h := range all {
		waits.Go(func() { ends[i] = supervise.AwaitEnd(limited, h.File) })
	}
	waits.Wait()
	for i, h := range all {
		switch err := ends[i]; {
		case err == nil:
			_ = h.Close()
		case ctx.Err() == nil && errors.Is(err, context.DeadlineExceeded):
			left, ends[i] = append(left, h), nil
		default:
			left = append(left, h)
		}
	}
	return left, errors.Join(ends...)
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
