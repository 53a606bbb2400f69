package iscsi

import (
	"context"
	"fmt"
	"net"
	"os"
	"time"

	"golang.org/x/sys/unix"

	"github.com/nodevirt/nodevirt/shim/supervise"
)

// The pauses between attempts to reach a tgtd that does not run.
const (
	minPause = 50 * time.Millisecond
	maxPause = time.Second
)

// Watch calls the function, with a context that ends with ctx, each time that a tgtd starts to answer:
// the first one, and each that replaces it, which has no targets. It returns when ctx ends.
func (d *Daemon) Watch(ctx context.Context, back func(context.Context)) {
	logged := false
	for pause := minPause; ctx.Err() == nil; pause = min(2*pause, maxPause) {
		process, err := d.process(ctx)
		if err != nil {
			if !logged && ctx.Err() == nil {
				d.opts.Logger.Debug("tgtd does not answer", "error", err)
				logged = true
			}
			wait(ctx, pause)
			continue
		}
		logged, pause = false, minPause
		back(ctx)
		err = supervise.AwaitEnd(ctx, process)
		_ = process.Close()
		if ctx.Err() == nil {
			d.opts.Logger.Warn("tgtd ended; guests on iSCSI wait for it", "socket", d.opts.Socket, "error", err)
		}
		wait(ctx, pause)
	}
}

// process returns a pidfd of the tgtd that answers. Watch does not keep a connection instead: tgtd never
// closes a connection without a request, and uses all of a processor once the other end is gone, such as
// a shim that was restarted.
func (d *Daemon) process(ctx context.Context) (*os.File, error) {
	var pidfd *os.File
	_, err := d.exchange(ctx, request{Mode: modeSystem, Op: opShow}, "", func(conn *net.UnixConn) (err error) {
		pidfd, err = peer(conn)
		return err
	})
	if err != nil && pidfd != nil {
		_ = pidfd.Close()
	}
	if err != nil {
		return nil, err
	}
	return pidfd, nil
}

// peer returns a pidfd of the process that listens at the other end.
func peer(conn *net.UnixConn) (*os.File, error) {
	raw, err := conn.SyscallConn()
	if err != nil {
		return nil, err
	}
	var credentials *unix.Ucred
	var failed error
	if err := raw.Control(func(fd uintptr) {
		credentials, failed = unix.GetsockoptUcred(int(fd), unix.SOL_SOCKET, unix.SO_PEERCRED)
	}); err != nil {
		return nil, err
	}
	if failed != nil {
		return nil, os.NewSyscallError("getsockopt", failed)
	}
	fd, err := unix.PidfdOpen(int(credentials.Pid), unix.PIDFD_NONBLOCK)
	if err != nil {
		return nil, fmt.Errorf("watch tgtd, process %d: %w", credentials.Pid, os.NewSyscallError("pidfd_open", err))
	}
	return os.NewFile(uintptr(fd), "pidfd"), nil
}

func wait(ctx context.Context, pause time.Duration) {
	select {
	case <-ctx.Done():
	case <-time.After(pause):
	}
}
