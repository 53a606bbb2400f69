package supervise

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"time"

	"github.com/containerd/errdefs"
)

// ErrEnded means that a process ended before it was ready.
var ErrEnded = errdefs.ErrInternal.WithMessage("ended before it was ready")

const (
	// undoTime bounds the end of a process whose start failed.
	undoTime = 15 * time.Second
	// readyPause is between two calls of Ready.
	readyPause = 2 * time.Millisecond
	// maxOutput is how many bytes of a process's output an error has.
	maxOutput = 1000
)

// Failure is the error of a process that did not become ready.
type Failure struct {
	Err    error
	Output string // what the process wrote, up to 1000 bytes
}

func (f *Failure) Error() string {
	if f.Output == "" {
		return f.Err.Error()
	}
	return f.Err.Error() + ": " + f.Output
}

func (f *Failure) Unwrap() error { return f.Err }

// Start starts the process and returns its id when it is ready. It does not look for one that runs
// already: see [Process.Find]. The process outlives ctx and the caller, and is the leader of a new
// session. If Start fails, no process is left; a process that ended, or that ctx did not wait for,
// is a *[Failure].
func (p Process) Start(ctx context.Context) (pid int, err error) {
	defer func() {
		if err != nil {
			ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), undoTime)
			defer cancel()
			err = errors.Join(err, p.End(ctx))
		}
	}()
	if p.Daemon {
		return p.startDaemon(ctx)
	}
	return p.startChild(ctx)
}

// configure gives cmd what Start has in common for all processes.
func (p Process) configure(cmd *exec.Cmd) {
	cmd.Dir, cmd.Env = "/", []string{"LC_ALL=C"}
	cmd.ExtraFiles = p.Files
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Cloneflags: p.Namespaces}
	if p.IDs.Size > 0 {
		cmd.SysProcAttr.Cloneflags |= syscall.CLONE_NEWUSER
		cmd.SysProcAttr.UidMappings, cmd.SysProcAttr.GidMappings = []syscall.SysProcIDMap{p.IDs}, []syscall.SysProcIDMap{p.IDs}
		cmd.SysProcAttr.GidMappingsEnableSetgroups = true
	}
	if p.User != nil {
		cmd.SysProcAttr.Credential = &syscall.Credential{Uid: p.User.UID, Gid: p.User.GID}
	}
}

// startDaemon returns when the process that it started has ended: the daemon in the background is
// ready then and has written its pid file.
func (p Process) startDaemon(ctx context.Context) (int, error) {
	cmd := exec.CommandContext(ctx, p.Program, p.Args...)
	p.configure(cmd)
	// The daemon closes stderr when it has written its pid file. So the file is there when Run
	// returns, even if ctx ends meanwhile.
	cmd.WaitDelay = time.Second
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	err := p.launch(cmd)
	if err == nil {
		err = cmd.Wait()
	}
	switch {
	case errors.Is(err, exec.ErrWaitDelay):
	case err != nil && ctx.Err() != nil:
		return 0, failure(ctx.Err(), stderr.Bytes()) // not "signal: killed"
	case err != nil:
		return 0, failure(err, stderr.Bytes())
	}
	pid, err := p.Find()
	if err == nil && pid == 0 {
		err = fmt.Errorf("%s %w", p.Name, ErrEnded)
	}
	return pid, err
}

func (p Process) startChild(ctx context.Context) (int, error) {
	log, err := os.OpenFile(p.Log, os.O_CREATE|os.O_TRUNC|os.O_WRONLY, 0o600)
	if err != nil {
		return 0, fmt.Errorf("open log of %s: %w", p.Name, err)
	}
	defer log.Close()
	// Not bound to ctx: the process outlives this call and this program.
	cmd := exec.Command(p.Program, p.Args...) //nolint:noctx // see above
	p.configure(cmd)
	cmd.Stdout, cmd.Stderr = log, log
	if err := p.launch(cmd); err != nil {
		return 0, fmt.Errorf("start %s: %w", p.Name, err)
	}
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		_ = cmd.Wait()
	}()
	pid := cmd.Process.Pid
	started := make(chan error, 1)
	go func() { started <- p.callStarted(pid) }()
	ready := p.awaitReady(ctx, pid)
	if err := errors.Join(ready, <-started); err != nil {
		_ = cmd.Process.Kill() // End needs the pid file, which need not be there yet
		select {
		case <-ended:
			if errors.Is(err, ErrEnded) {
				err = fmt.Errorf("%w: %v", err, cmd.ProcessState)
			}
		case <-time.After(p.Grace):
		}
		output, _ := os.ReadFile(p.Log)
		return 0, failure(err, output)
	}
	return pid, nil
}

func (p Process) callStarted(pid int) error {
	if p.Started == nil {
		return nil
	}
	return p.Started(pid)
}

func (p Process) awaitReady(ctx context.Context, pid int) error {
	for {
		if startTime(pid) == "" {
			return fmt.Errorf("%s %w", p.Name, ErrEnded)
		}
		if ready, err := p.Ready(pid); ready || err != nil {
			return err
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("wait for %s: %w", p.Name, ctx.Err())
		case <-time.After(readyPause):
		}
	}
}

func failure(err error, output []byte) error {
	return &Failure{Err: err, Output: strings.TrimSpace(string(output[:min(len(output), maxOutput)]))}
}
