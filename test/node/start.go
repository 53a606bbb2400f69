package node

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/nodevirt/nodevirt/test/node/config"
	"github.com/nodevirt/nodevirt/test/node/supervisor"
)

// startLimit bounds the start of one component. libvirtd's first start asks QEMU for all that it
// can do, which takes ten seconds, and more on a busy machine.
const startLimit = 5 * time.Minute

// Start starts a node, or what is missing of it: components that run are left alone unless their
// program or configuration was replaced since. A failure's error ends with the tail of the
// component's log; what was started is left for a look at it, and for Stop.
func Start(ctx context.Context, o Options) (*Node, error) {
	o, err := o.complete()
	if err != nil {
		return nil, err
	}
	unlock, err := o.lock(ctx)
	if err != nil {
		return nil, err
	}
	defer unlock()

	values, err := o.values()
	if err != nil {
		return nil, err
	}
	components, err := o.components(values)
	if err != nil {
		return nil, err
	}
	n, err := o.supervise(ctx)
	if err != nil {
		return nil, fmt.Errorf("start node in %s: %w", o.Dir, err)
	}
	if err := n.setEndpoint(o.has(Shim)); err != nil {
		return nil, err
	}
	if _, err := writeFiles(map[string]string{o.etc("crictl.yaml"): config.Crictl()}); err != nil {
		return n, err
	}
	for _, c := range components {
		if err := n.ensure(ctx, c); err != nil {
			return n, fmt.Errorf("start %s: %w\n%s", c.Name, err, n.LogTail(c.Name, 20))
		}
	}
	if o.Registry != "" {
		return n, nil
	}
	if err := n.pushPause(ctx); err != nil {
		return n, fmt.Errorf("provide the sandbox image: %w", err)
	}
	return n, nil
}

// supervise finds the node's first process, or starts it.
func (o Options) supervise(ctx context.Context) (*Node, error) {
	if c, err := supervisor.Dial(o.supervisorSocket()); err == nil {
		return &Node{o: o, client: c}, nil
	}
	if err := o.prepare(ctx); err != nil {
		return nil, err
	}
	log, err := os.OpenFile(o.log("init"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return nil, fmt.Errorf("open log: %w", err)
	}
	defer log.Close()
	n := &Node{o: o}
	// Not bound to ctx: the node outlives this call.
	cmd := exec.Command(o.devnode(), "init", o.etc("init.json"))
	cmd.Stdout, cmd.Stderr = log, log
	cmd.Dir = o.path("cwd")
	cmd.SysProcAttr = &syscall.SysProcAttr{
		Setsid: true,
		Cloneflags: syscall.CLONE_NEWPID | syscall.CLONE_NEWNS | syscall.CLONE_NEWNET |
			syscall.CLONE_NEWUTS | syscall.CLONE_NEWIPC,
	}
	files, lifeline, err := o.descriptors()
	if err != nil {
		return nil, err
	}
	defer files.close()
	cmd.ExtraFiles, n.lifeline = files, lifeline
	if err := cmd.Start(); err != nil {
		return nil, fmt.Errorf("make namespaces; is this root, and are the programs built? %w", err)
	}
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }()
	return n, n.connect(ctx, ended)
}

func (n *Node) connect(ctx context.Context, ended <-chan error) (err error) {
	ctx, cancel := context.WithTimeout(ctx, startLimit)
	defer cancel()
	for {
		if n.client, err = supervisor.Dial(n.o.supervisorSocket()); err == nil {
			return nil
		}
		select {
		case err := <-ended:
			return fmt.Errorf("the node's first process ended: %w\n%s", err, n.LogTail("init", 20))
		case <-ctx.Done():
			return fmt.Errorf("wait for the node's first process: %w", context.Cause(ctx))
		case <-time.After(5 * time.Millisecond):
		}
	}
}

// ensure makes a component run by its present program and configuration.
func (n *Node) ensure(ctx context.Context, c Component) error {
	ctx, cancel := context.WithTimeoutCause(ctx, startLimit, errors.New("it took too long"))
	defer cancel()
	changed, err := writeFiles(c.Files)
	if err != nil {
		return err
	}
	s, err := n.state(c.Name)
	if err != nil {
		return err
	}
	if s.PID != 0 && !s.Ended && (changed || n.replaced(s.PID)) {
		if err := n.Kill(ctx, c.Name, endSignal(c.Name)); err != nil {
			return err
		}
		s.Ended = true
	}
	word := "runs already"
	if s.PID == 0 || s.Ended {
		if err := n.spawn(ctx, c); err != nil {
			return err
		}
		word = "is ready"
	}
	if err := n.wait(ctx, c); err != nil {
		return err
	}
	fmt.Fprintf(n.o.Log, "%s %s\n", c.Name, word)
	return nil
}

// replaced reports whether the program that a process runs is no longer the file of its name.
func (n *Node) replaced(pid int) bool {
	exe, err := os.Readlink(fmt.Sprintf("/proc/%d/root/proc/%d/exe", n.PID(), pid))
	return err == nil && strings.HasSuffix(exe, " (deleted)")
}

func (n *Node) spawn(ctx context.Context, c Component) error {
	if len(c.Before) > 0 {
		if _, err := n.Output(ctx, c.Before[0], c.Before[1:]...); err != nil {
			return err
		}
	}
	_, err := n.client.Start(supervisor.Daemon{
		Name: c.Name, Args: c.Args, Env: append(n.o.environ(), c.Env...), Dir: n.o.path("cwd"), Log: n.o.log(c.Name),
	})
	return err
}

// writeFiles writes the files whose text differs and reports whether one did.
func writeFiles(files map[string]string) (changed bool, err error) {
	for path, text := range files {
		if old, err := os.ReadFile(path); err == nil && string(old) == text {
			continue
		}
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			return false, fmt.Errorf("write configuration: %w", err)
		}
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			return false, fmt.Errorf("write configuration: %w", err)
		}
		changed = true
	}
	return changed, nil
}
