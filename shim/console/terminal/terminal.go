// Package terminal attaches people to serial consoles: any number at once to
// each, of whom everyone may type.
//
// What the guest prints comes from the file that QEMU appends it to, in which
// each client has a place of its own: a client that is slow skips what it has
// missed, and disturbs nobody. QEMU's socket, which takes one client, is held
// only while somebody could type, by one connection for all. So there is nothing
// that a restart of the shim could lose but the clients.
//
// It owns the clients. Who makes, bounds and removes the file is package
// console; who may attach at all is CRI's client.
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

// Console is where a machine's serial console is.
type Console struct {
	// Raw is the file that QEMU appends to, Socket where it takes what is typed.
	Raw, Socket string
	// Ended is closed when the machine has ended and Raw is complete.
	Ended <-chan struct{}
}

// Terminals are the clients of a node's consoles. Its methods may be called
// concurrently.
type Terminals struct {
	log *slog.Logger

	mu        sync.Mutex
	keyboards map[string]*keyboard // by socket
}

// New returns Terminals without clients.
func New(log *slog.Logger) *Terminals {
	return &Terminals{log: log, keyboards: map[string]*keyboard{}}
}

// Attach writes the last of what the guest has printed to out, and goes on with
// what it prints, until the machine has ended, which is no error, ctx is done or
// out fails. Meanwhile it types what comes from in, which may be nil; a read of
// it may go on afterwards.
func (t *Terminals) Attach(ctx context.Context, c Console, in io.Reader, out io.Writer) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	v, err := openView(c.Raw)
	if err != nil {
		return fmt.Errorf("attach to the console: %w", err)
	}
	defer v.close()
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

// maxKeys is how much is typed at a time, in bytes. What others type goes
// between, not into it.
const maxKeys = 4096

// keys types what comes from in, and says so: an echo is to be expected.
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
