package bench

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os/exec"

	"github.com/nodevirt/nodevirt/shim/cgroup"
)

// grouped is a program that waits to be run, in the node, and in a control group as a VM's is: the
// kernel gives groups beside each other the same share of its processors, whatever is in them.
type grouped struct {
	cmd    *exec.Cmd
	stdin  io.WriteCloser
	said   bytes.Buffer
	cancel context.CancelFunc
}

// place is a control group for programs that are compared. Memory is its limit in bytes; 0 is none.
type place struct {
	name   string
	memory int64
}

// prepare has a program wait in a group.
func (r *rig) prepare(ctx context.Context, in place, name string, args ...string) (_ *grouped, err error) {
	ctx, cancel := context.WithCancel(ctx)
	line := append([]string{"-c", `echo waiting; read -r _ && exec "$@" </dev/null >&2`, "sh", name}, args...)
	g := &grouped{cmd: r.Command(ctx, "sh", line...), cancel: cancel}
	g.cmd.Stderr = &g.said
	if g.stdin, err = g.cmd.StdinPipe(); err != nil {
		cancel()
		return nil, err
	}
	out, err := g.cmd.StdoutPipe()
	if err != nil {
		cancel()
		return nil, err
	}
	if err := g.cmd.Start(); err != nil {
		cancel()
		return nil, fmt.Errorf("start %s: %w", name, err)
	}
	if _, err = io.ReadFull(out, make([]byte, len("waiting\n"))); err == nil {
		err = r.group(in, g.cmd.Process.Pid)
	}
	if err != nil {
		g.end()
		return nil, fmt.Errorf("start %s: %w", name, err)
	}
	return g, nil
}

// group moves a process with its descendants.
func (r *rig) group(in place, pid int) error {
	group, err := cgroup.Open(r.CgroupParent()+"/alone", in.name)
	if err == nil {
		err = group.Create(cgroup.Limits{Memory: in.memory})
	}
	if err != nil {
		return err
	}
	all, err := processes(pid)
	for _, p := range all {
		err = errors.Join(err, group.Add(p.pid))
	}
	return err
}

// release has the program run.
func (g *grouped) release() error {
	_, err := io.WriteString(g.stdin, "\n")
	return err
}

// run runs the program, and waits for its end.
func (g *grouped) run() error {
	defer g.cancel()
	if err := g.release(); err != nil {
		return err
	}
	if err := g.cmd.Wait(); err != nil {
		return fmt.Errorf("%w: %s", err, bytes.TrimSpace(g.said.Bytes()))
	}
	return nil
}

// end kills the program.
func (g *grouped) end() {
	g.cancel()
	_ = g.cmd.Wait() // killed, as it should be
}
