// Package daemon runs a program of a test or a bench until it is stopped: a real etcd, API server or
// controller. It owns the process and its log file; what the program serves is the caller's.
package daemon

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"syscall"
	"time"
)

// Daemon is a program that runs until it is stopped, or the test ends.
type Daemon struct {
	path, log string
	args      []string
	process   *os.Process
	ended     chan struct{}
}

// New returns a daemon that is not started. It appends what the program prints to the file log.
func New(path, log string, args ...string) *Daemon {
	return &Daemon{path: path, log: log, args: args}
}

// Start starts the program.
func (d *Daemon) Start() error {
	log, err := os.OpenFile(d.log, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	started := make(chan error)
	d.ended = make(chan struct{})
	go func() {
		defer log.Close()
		// The kernel ends the program with the thread that started it.
		runtime.LockOSThread()
		cmd := exec.Command(d.path, d.args...)
		cmd.Stdout, cmd.Stderr = log, log
		cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
		err := cmd.Start()
		d.process = cmd.Process
		started <- err
		if err == nil {
			_ = cmd.Wait() // how it ended is in its log
		}
		close(d.ended)
	}()
	if err := <-started; err != nil {
		return fmt.Errorf("start %s: %w", d.path, err)
	}
	return nil
}

// Stop kills the program, as etcd and the API server expect, and returns when it has ended.
func (d *Daemon) Stop() {
	if d == nil || d.process == nil {
		return
	}
	_ = d.process.Kill() // it may have ended already
	<-d.ended
}

// PID returns the process's number.
func (d *Daemon) PID() int { return d.process.Pid }

// Ended reports whether the program has ended.
func (d *Daemon) Ended() bool {
	select {
	case <-d.ended:
		return true
	default:
		return false
	}
}

// Wait returns when ready does without an error. It returns an error when the daemon has ended.
func (d *Daemon) Wait(ctx context.Context, limit time.Duration, ready func(context.Context) error) error {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	for {
		err := ready(ctx)
		if err == nil {
			return nil
		}
		select {
		case <-d.ended:
			return fmt.Errorf("%s has ended:\n%s", d.path, d.Tail())
		case <-ctx.Done():
			return fmt.Errorf("%s does not serve: %w:\n%s", d.path, err, d.Tail())
		case <-time.After(50 * time.Millisecond):
		}
	}
}

// tail is how many bytes of a log Tail returns.
const tail = 4000

// Tail returns the end of the log.
func (d *Daemon) Tail() string {
	if d == nil {
		return ""
	}
	text, err := os.ReadFile(d.log)
	if err != nil {
		return err.Error()
	}
	return string(text[max(0, len(text)-tail):])
}
