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
	// syncTime bounds a synchronization: an agent that is idle takes milliseconds.
	syncTime = 10 * time.Second
	// silence is how long an agent may say nothing while an answer is due. The
	// agent does one thing at a time, and none of what it is asked here takes long.
	silence = 10 * time.Second
	// outputSilence is the same of an answer that may hold a command's output. The
	// agent makes all of it, 45 MiB at most, before its first byte: that takes an
	// emulated guest seconds, and more on a busy node.
	outputSilence = 30 * time.Second
	// answerTime bounds an answer that dribbles in.
	answerTime = time.Minute
	// smallAnswer, in bytes, bounds all answers but those that hold output.
	smallAnswer = 1 << 20
)

// delimiter can't occur in JSON. The agent drops what it had half read at it,
// and puts one before the answer to a guest-sync-delimited.
const delimiter = 0xff

// patience is how long agents are waited for.
type patience struct {
	sync, silence, output time.Duration
}

// before is how long an answer of at most limit bytes may be waited for in silence.
func (p patience) before(limit int) time.Duration {
	if limit > smallAnswer {
		return p.output
	}
	return p.silence
}

// conn is a connection to an agent that has been synchronized: what is read next
// answers what is written next.
type conn struct {
	net.Conn
	patience
	in *bufio.Reader
	// large holds a token while an answer larger than smallAnswer is read.
	large chan struct{}
}

// dial connects to an agent's socket and synchronizes. A socket that is not there,
// or that nobody serves, is ErrGone: there is no machine.
func dial(ctx context.Context, socket string, p patience, large chan struct{}) (_ *conn, err error) {
	ctx, cancel := context.WithTimeoutCause(ctx, p.sync, ErrSilent)
	defer cancel()
	raw, err := new(net.Dialer).DialContext(ctx, "unix", socket)
	if err != nil {
		if ctx.Err() != nil {
			return nil, context.Cause(ctx)
		}
		return nil, fmt.Errorf("%w: %w", ErrGone, err)
	}
	c := &conn{Conn: raw, patience: p, in: bufio.NewReaderSize(raw, 64<<10), large: large}
	if err := c.sync(ctx); err != nil {
		return nil, errors.Join(err, c.Close())
	}
	return c, nil
}

// sync skips what is left of others' conversations.
func (c *conn) sync(ctx context.Context) error {
	defer c.obey(ctx)()
	id := time.Now().UnixNano() // no earlier conversation had it
	request := fmt.Sprintf("{\"execute\":\"guest-sync-delimited\",\"arguments\":{\"id\":%d}}\n", id)
	if _, err := c.Write(append([]byte{delimiter}, request...)); err != nil {
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

// ask sends a command and reads its answer, of at most limit bytes. After an
// error that is not the agent's own refusal the connection is of no more use.
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
	if _, err := c.Write(append(request, '\n')); err != nil {
		return ended(ctx, err)
	}
	line, err := c.line(ctx, limit)
	if err != nil {
		return err
	}
	return decodeReply(command, line, result)
}

// obey ends reads and writes with ctx, until the returned function is called.
func (c *conn) obey(ctx context.Context) (release func()) {
	_ = c.SetDeadline(time.Time{})
	stop := context.AfterFunc(ctx, func() { _ = c.SetDeadline(time.Unix(1, 0)) })
	return func() { stop() }
}

// line reads up to a newline, limit bytes at most.
func (c *conn) line(ctx context.Context, limit int) ([]byte, error) {
	var line []byte
	for {
		if err := c.SetReadDeadline(time.Now().Add(c.before(limit))); err != nil {
			return nil, ended(ctx, err)
		}
		if ctx.Err() != nil { // its deadline was overwritten by ours
			return nil, context.Cause(ctx)
		}
		part, err := c.in.ReadSlice('\n')
		if len(line)+len(part) > limit {
			return nil, fmt.Errorf("%w: an answer of more than %d bytes", ErrGarbled, limit)
		}
		if len(line) <= smallAnswer && len(line)+len(part) > smallAnswer {
			if err := c.takeToken(ctx); err != nil {
				return nil, err
			}
			defer c.giveToken()
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

func (c *conn) takeToken(ctx context.Context) error {
	select {
	case c.large <- struct{}{}:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

func (c *conn) giveToken() { <-c.large }

// ended says why a connection is of no more use.
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
