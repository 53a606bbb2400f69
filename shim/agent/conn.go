package agent

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"time"
)

const (
	// syncTime bounds a synchronization, which takes an idle agent milliseconds.
	syncTime = 10 * time.Second
	// silence is how long an agent may send nothing while an answer is due. The
	// agent runs one command at a time, and none of those used here takes long.
	silence = 10 * time.Second
	// outputSilence is the same for an answer that may contain a command's output.
	// The agent encodes all of it, 45 MiB at most, before it sends the first byte.
	// That takes an emulated guest seconds, and more on a busy node.
	outputSilence = 30 * time.Second
	// answerTime bounds an answer that arrives slowly.
	answerTime = time.Minute
	// Above smallAnswer, an answer has begun to arrive, and the agent has nothing more to do for it: what is left comes
	// with largeRate bytes a second, after largeGrace, which an emulated guest on a busy node needs.
	largeGrace = 10 * time.Second
	largeRate  = 1 << 20
	// smallAnswer bounds all answers except those that contain output, in bytes.
	smallAnswer = 1 << 20
)

// delimiter cannot occur in JSON. When the agent reads it, it drops an incomplete
// request. It sends a delimiter before its answer to guest-sync-delimited.
const delimiter = 0xff

// patience is how long calls wait for agents.
type patience struct {
	sync, silence, output time.Duration
	// grace is how long the end of a large answer may take beside its size.
	grace time.Duration
}

// before returns how long to wait in silence for an answer of at most limit bytes.
func (p patience) before(limit int) time.Duration {
	if limit > smallAnswer {
		return p.output
	}
	return p.silence
}

// conn is a synchronized connection to an agent: the next line that it reads
// answers the next request.
type conn struct {
	raw      net.Conn
	patience patience
	in       *bufio.Reader
	// large has the turns of answers over smallAnswer.
	large Large
	// namespace is the one that takes them.
	namespace string
}

// dial connects to an agent's socket and synchronizes. If the socket is missing or
// not served, the VM does not run, and dial returns ErrGone.
func dial(ctx context.Context, socket string, p patience, large Large, namespace string) (_ *conn, err error) {
	ctx, cancel := context.WithTimeoutCause(ctx, p.sync, ErrSilent)
	defer cancel()
	raw, err := new(net.Dialer).DialContext(ctx, "unix", socket)
	if err != nil {
		if ctx.Err() != nil {
			return nil, context.Cause(ctx)
		}
		return nil, fmt.Errorf("%w: %w", ErrGone, err)
	}
	c := &conn{raw: raw, patience: p, in: bufio.NewReaderSize(raw, 64<<10), large: large, namespace: namespace}
	if err := c.sync(ctx); err != nil {
		return nil, errors.Join(err, raw.Close())
	}
	return c, nil
}

// sync skips what remains of earlier connections.
func (c *conn) sync(ctx context.Context) error {
	defer c.obey(ctx)()
	id := time.Now().UnixNano() // not used by an earlier connection
	request := fmt.Sprintf("{\"execute\":\"guest-sync-delimited\",\"arguments\":{\"id\":%d}}\n", id)
	if _, err := c.raw.Write(append([]byte{delimiter}, request...)); err != nil {
		return ended(ctx, err)
	}
	for {
		if err := c.skipTo(delimiter); err != nil {
			return ended(ctx, err)
		}
		line, err := c.line(ctx, smallAnswer)
		if err != nil {
			return err
		}
		var got int64
		if decodeReply("guest-sync-delimited", line, &got) == nil && got == id {
			return nil
		}
	}
}

func (c *conn) skipTo(mark byte) error {
	for {
		b, err := c.in.ReadByte()
		if err != nil || b == mark {
			return err
		}
	}
}

// ask sends a command and reads its answer, of at most limit bytes. After any error
// except a refusal by the agent the connection must be closed.
func (c *conn) ask(ctx context.Context, command string, arguments any, limit int, result any) error {
	request, err := json.Marshal(struct {
		Execute   string `json:"execute"`
		Arguments any    `json:"arguments,omitempty"`
	}{command, arguments})
	if err != nil {
		return fmt.Errorf("%w: %w", ErrInvalid, err)
	}
	ctx, cancel := context.WithTimeoutCause(ctx, answerTime, ErrSilent)
	defer cancel()
	defer c.obey(ctx)()
	if _, err := c.raw.Write(append(request, '\n')); err != nil {
		return ended(ctx, err)
	}
	line, err := c.line(ctx, limit)
	if err != nil {
		return err
	}
	return decodeReply(command, line, result)
}

// obey interrupts reads and writes when ctx ends, until release is called.
func (c *conn) obey(ctx context.Context) (release func()) {
	_ = c.raw.SetDeadline(time.Time{})
	stop := context.AfterFunc(ctx, func() { _ = c.raw.SetDeadline(time.Unix(1, 0)) })
	return func() { stop() }
}

// line reads up to a newline, limit bytes at most.
func (c *conn) line(ctx context.Context, limit int) ([]byte, error) {
	var line []byte
	var turn time.Time // when the large answer's began
	for {
		deadline := time.Now().Add(c.patience.before(limit))
		if slowest := turn.Add(c.patience.grace + time.Duration(len(line))*time.Second/largeRate); !turn.IsZero() && slowest.Before(deadline) {
			deadline = slowest
		}
		if err := c.raw.SetReadDeadline(deadline); err != nil {
			return nil, ended(ctx, err)
		}
		if ctx.Err() != nil { // SetReadDeadline has overwritten its deadline
			return nil, context.Cause(ctx)
		}
		part, err := c.in.ReadSlice('\n')
		if len(line)+len(part) > limit {
			return nil, fmt.Errorf("%w: the answer has more than %d bytes", ErrGarbled, limit)
		}
		if len(line) <= smallAnswer && len(line)+len(part) > smallAnswer {
			end, err := c.large.Take(ctx, c.namespace, func() {})
			if err != nil {
				return nil, err
			}
			defer end()
			turn = time.Now()
		}
		line = append(line, part...)
		switch {
		case err == nil:
			return bytes.TrimSuffix(line, []byte{'\n'}), nil
		case !errors.Is(err, bufio.ErrBufferFull):
			return nil, ended(ctx, err)
		}
	}
}

// ended translates an error of a connection that must be closed.
func ended(ctx context.Context, err error) error {
	switch {
	case ctx.Err() != nil:
		return context.Cause(ctx)
	case errors.Is(err, os.ErrDeadlineExceeded):
		return ErrSilent
	case errors.Is(err, io.EOF), errors.Is(err, net.ErrClosed):
		return ErrGone
	}
	return fmt.Errorf("%w: %w", ErrGone, err)
}
