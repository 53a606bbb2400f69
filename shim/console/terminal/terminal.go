// Package terminal attaches clients to serial consoles. Several clients may attach
// to one console, and all may type.
//
// Each client reads the guest's output from the file that QEMU appends to, at its
// own offset: a slow client skips output, and does not delay others. All clients
// share one connection to QEMU's socket, which accepts only one, while any of them
// may type. So a restart of the shim loses only the clients.
//
// It owns the clients. It leaves the file and its size to package console, and
// authorization to CRI's clients.
package terminal

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"sync"
)

// Console locates a VM's serial console.
type Console struct {
	// Raw is the file that QEMU appends output to, Socket the socket that takes input.
	Raw, Socket string
	// Live leaves out what the guest printed before.
	Live bool
	// Greeting is written to a client before the guest's output: from then on it misses none.
	Greeting string
	// Ended is closed when the VM has ended and Raw is complete.
	Ended <-chan struct{}
}

// Terminals manages the clients of a node's consoles. Its methods may be called concurrently.
type Terminals struct {
	log *slog.Logger

	mu        sync.Mutex
	keyboards map[string]*keyboard // by socket
}

// New returns Terminals without clients.
func New(log *slog.Logger) *Terminals {
	return &Terminals{log: log, keyboards: map[string]*keyboard{}}
}

// Attach writes the end of the guest's past output, unless c is live, and its new output to out, until
// the VM ends, which is not an error, ctx is done or out fails. It sends in, which
// may be nil, to the guest; a read of in may continue after Attach returns.
func (t *Terminals) Attach(ctx context.Context, c Console, in io.Reader, out io.Writer) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	v, err := openView(c.Raw, c.Live)
	if err != nil {
		return fmt.Errorf("attach to the console: %w", err)
	}
	defer v.close()
	if c.Greeting != "" {
		if _, err := io.WriteString(out, c.Greeting); err != nil {
			return fmt.Errorf("attach to the console: %w", err)
		}
	}
	typed := make(chan struct{}, 1)
	if in != nil {
		k := t.keyboard(c.Socket)
		defer t.release(k)
		go t.keys(ctx, k, in, typed)
	}
	if err := v.show(ctx, c.Ended, typed, out); err != nil {
		return fmt.Errorf("attach to the console: %w", err)
	}
	return nil
}

// maxKeys bounds what is typed at once, in bytes. The input of other clients is not mixed into it.
const maxKeys = 4096

// keys types the input from in, and signals typed, since the guest is likely to echo it.
func (t *Terminals) keys(ctx context.Context, k *keyboard, in io.Reader, typed chan<- struct{}) {
	buf := make([]byte, maxKeys)
	for {
		n, err := in.Read(buf)
		if n > 0 {
			if k.press(ctx, bytes.Clone(buf[:n])) != nil {
				return
			}
			select {
			case typed <- struct{}{}:
			default:
			}
		}
		if err != nil {
			if !errors.Is(err, io.EOF) && ctx.Err() == nil {
				t.log.Debug("reading what a console's client types failed", "error", err)
			}
			return
		}
	}
}
