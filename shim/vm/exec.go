package vm

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/nodevirt/nodevirt/shim/agent"
	"github.com/nodevirt/nodevirt/shim/stream"
)

// CheckExec refuses a command that can't be run in a machine, before its client
// is given a URL. The id is a running container's.
func (m *Manager) CheckExec(id string, r *runtimeapi.ExecRequest) error {
	c, err := m.find(id)
	if err != nil {
		return err
	}
	if control, err := m.controlOf(r.GetCmd()); err != nil {
		return execFailed(c, err)
	} else if control != nil {
		return nil
	}
	if m.agent(c).State().Presence == agent.Absent {
		return execFailed(c, agent.ErrAbsent)
	}
	return nil
}

// Exec runs a command in a guest, or a machine's control, with a client's streams. An agent takes input
// before the command starts, and gives its output when it has ended.
func (m *Manager) Exec(ctx context.Context, id string, command []string, s stream.Streams) error {
	c, err := m.find(id)
	if err != nil {
		return err
	}
	if control, err := m.controlOf(command); err != nil {
		return execFailed(c, err)
	} else if control != nil {
		return m.execControl(ctx, c, control, s)
	}
	if s.TTY {
		return m.interact(ctx, c, command, s)
	}
	input, err := readInput(ctx, s.In)
	if err != nil {
		return execFailed(c, err)
	}
	r, err := m.agent(c).Exec(ctx, agent.Command{Args: command, Input: input})
	if err != nil {
		return execFailed(c, err)
	}
	if err := deliver(s, r); err != nil {
		return execFailed(c, err)
	}
	if r.Code != 0 {
		return &stream.ExitError{Code: int(r.Code)}
	}
	return nil
}

func (m *Manager) execControl(ctx context.Context, c *machine, do control, s stream.Streams) error {
	out, err := do(ctx, c)
	if err != nil {
		return execFailed(c, err)
	}
	return deliver(s, agent.Result{Stdout: out})
}

// interact runs a command in a guest with a terminal.
func (m *Manager) interact(ctx context.Context, c *machine, command []string, s stream.Streams) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	out := s.Out
	if out == nil {
		out = io.Discard
	}
	code, err := m.agent(c).Interact(ctx, agent.Session{Args: command, In: s.In, Out: out, Resize: sizes(ctx, s.Resize)})
	if err != nil {
		return execFailed(c, err)
	}
	if code != 0 {
		return &stream.ExitError{Code: int(code)}
	}
	return nil
}

// sizes passes on a client's terminal sizes until ctx ends.
func sizes(ctx context.Context, from <-chan stream.Size) <-chan agent.Size {
	if from == nil {
		return nil
	}
	to := make(chan agent.Size)
	go func() { // ends at the latest with the client's connection
		defer close(to)
		for size := range from {
			select {
			case to <- agent.Size{Rows: size.Height, Columns: size.Width}:
			case <-ctx.Done():
				return
			}
		}
	}()
	return to
}

// readInput reads what a client sends to its end, or until ctx ends.
func readInput(ctx context.Context, in io.Reader) ([]byte, error) {
	if in == nil {
		return nil, nil
	}
	type result struct {
		data []byte
		err  error
	}
	done := make(chan result, 1)
	go func() { // ends with the stream, which ends with the connection
		data, err := io.ReadAll(io.LimitReader(in, agent.MaxInput+1))
		done <- result{data, err}
	}()
	select {
	case r := <-done:
		if r.err != nil {
			return nil, fmt.Errorf("read its input: %w", r.err)
		}
		return r.data, nil
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
}

// deliver writes a command's output to its client.
func deliver(s stream.Streams, r agent.Result) error {
	for _, out := range []struct {
		name string
		to   io.Writer
		data []byte
		cut  bool
	}{{"stdout", s.Out, r.Stdout, r.StdoutTruncated}, {"stderr", s.Err, r.Stderr, r.StderrTruncated}} {
		if out.to != nil {
			if _, err := out.to.Write(out.data); err != nil {
				return fmt.Errorf("deliver its %s: %w", out.name, err)
			}
		}
		if out.cut && s.Err != nil {
			if _, err := fmt.Fprintf(s.Err, "nodevirt: the guest agent keeps no more than the first %d bytes of %s\n",
				len(out.data), out.name); err != nil {
				return fmt.Errorf("deliver its stderr: %w", err)
			}
		}
	}
	return nil
}

// maxReply, in bytes, bounds the output in a reply: the kubelet takes no message
// of more than 16 MiB, and CRI wants what is beyond dropped without an error.
const maxReply = 16<<20 - 4096

// ExecSync runs a command in a guest and returns its output and its code. A
// timeout of 0 is none.
func (m *Manager) ExecSync(ctx context.Context, id string, command []string, timeout time.Duration) (*runtimeapi.ExecSyncResponse, error) {
	c, err := m.find(id)
	if err != nil {
		return nil, err
	}
	if timeout > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeoutCause(ctx, timeout,
			fmt.Errorf("timeout %s exceeded: %w", timeout, context.DeadlineExceeded))
		defer cancel()
	}
	r, err := m.execNow(ctx, c, command)
	if err != nil {
		return nil, execFailed(c, err)
	}
	// Of a flood on one stream, the other's words are kept.
	stderr := r.Stderr[:min(len(r.Stderr), max(maxReply-len(r.Stdout), maxReply/2))]
	stdout := r.Stdout[:min(len(r.Stdout), maxReply-len(stderr))]
	return &runtimeapi.ExecSyncResponse{Stdout: stdout, Stderr: stderr, ExitCode: r.Code}, nil
}

func (m *Manager) execNow(ctx context.Context, c *machine, command []string) (agent.Result, error) {
	control, err := m.controlOf(command)
	if err != nil {
		return agent.Result{}, err
	}
	if control == nil {
		return m.agent(c).Exec(ctx, agent.Command{Args: command})
	}
	out, err := control(ctx, c)
	if err != nil && command[0] == controlPrefix+controlPing {
		// A probe wants to know just that. Of an error the kubelet takes no count.
		return agent.Result{Stderr: []byte(err.Error() + "\n"), Code: 1}, nil
	}
	return agent.Result{Stdout: out}, err
}

func execFailed(c *machine, err error) error {
	r := c.record()
	if errors.Is(err, agent.ErrGone) && r.Domain.PID == 0 {
		err = fmt.Errorf("%w: the machine ended", err)
	}
	return fmt.Errorf("exec in VM container %q of pod %s: %w", r.Config.Value.GetMetadata().GetName(), podName(r), err)
}
