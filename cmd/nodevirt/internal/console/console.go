// Package console connects a user to a VM's serial console: a terminal to it by
// an attach, or anything else to its log.
//
// It owns the terminal's mode and the escape key. The attach's URL and the log's
// path, and when the VM has ended, the caller says.
package console

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"

	"golang.org/x/term"

	"github.com/nodevirt/nodevirt/shim/stream"
	"github.com/nodevirt/nodevirt/shim/stream/client"
)

// Escape leaves a console: ctrl-], as in virsh and telnet.
const Escape = 0x1d

// What ends a session while the VM runs on.
var (
	// ErrLeft says that the user left the console.
	ErrLeft = errors.New("left the console")
	// ErrCut says that the shim, or what is between, has gone.
	ErrCut = client.ErrCut
)

// Attach joins a terminal and the console behind an attach's URL until the VM
// ends, which is no error, the user leaves ([ErrLeft]), the shim goes ([ErrCut]),
// or ctx ends. The terminal is raw meanwhile: every key but the escape is the
// guest's.
func Attach(ctx context.Context, url string, in *os.File, out io.Writer) error {
	state, err := term.MakeRaw(int(in.Fd()))
	if err != nil {
		return fmt.Errorf("set the terminal up: %w", err)
	}
	defer term.Restore(int(in.Fd()), state) //nolint:errcheck // there is nothing left to do about it

	ctx, leave := context.WithCancelCause(ctx)
	defer leave(nil)
	typed, keyboard := io.Pipe()
	defer func() { _ = typed.Close() }()
	go func() { // ends with the program: a read from a terminal can't be interrupted
		leave(forward(keyboard, in))
	}()
	err = client.Run(ctx, url, stream.Streams{In: typed, Out: out, TTY: true})
	fmt.Fprint(out, "\r\n")
	return err
}

// forward sends keys to the guest until the escape, or the end of the input.
func forward(w io.Writer, keys io.Reader) error {
	buf := make([]byte, 1024)
	for {
		n, err := keys.Read(buf)
		typed, _, escaped := bytes.Cut(buf[:n], []byte{Escape})
		if _, err := w.Write(typed); err != nil {
			return nil //nolint:nilerr // the session has ended already
		}
		if escaped || errors.Is(err, io.EOF) {
			return ErrLeft
		}
		if err != nil {
			return fmt.Errorf("read the terminal: %w", err)
		}
	}
}
