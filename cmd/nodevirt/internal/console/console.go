// Package console connects a user to a VM's serial console: a terminal by an
// attach, any other output by the log.
//
// It owns the terminal's mode and the escape key. The caller provides the URL of
// the attach, the path of the log, and the end of the VM.
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

// Escape is the key that disconnects: ctrl-], as in virsh and telnet.
const Escape = 0x1d

// The errors of a session that ends before the VM does.
var (
	// ErrLeft is returned if the user disconnected.
	ErrLeft = errors.New("left the console")
	// ErrCut is returned if the connection to the shim was lost.
	ErrCut = client.ErrCut
)

// Attach connects a terminal to the URL of an attach. It returns nil when the VM
// ends, [ErrLeft] if the user disconnects, [ErrCut] if the shim is lost, or ctx's
// cause. The terminal is in raw mode meanwhile: all keys but Escape go to the guest.
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

// forward sends keys to the guest until Escape or the end of the input.
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
