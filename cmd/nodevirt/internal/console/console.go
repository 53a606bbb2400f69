// Package console connects a user to a VM's serial console: a terminal to its
// socket, or anything else to its log.
//
// It owns the terminal's mode and the escape key. Where socket and log are, and
// when the VM has ended, the caller says.
package console

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"time"

	"golang.org/x/term"
)

// Escape leaves a console: ctrl-], as in virsh and telnet.
const Escape = 0x1d

// ErrLeft says that the user left the console; the VM runs on.
var ErrLeft = errors.New("left the console")

// socketWait bounds how long the socket of a VM that was just started may take.
const socketWait = 5 * time.Second

// Attach joins a terminal and a console's socket until the VM ends, which is no
// error, the user leaves ([ErrLeft]), or ctx ends. The terminal is raw
// meanwhile: every key but the escape is the guest's.
func Attach(ctx context.Context, socket string, in *os.File, out io.Writer) error {
	conn, err := dial(ctx, socket)
	if err != nil {
		return fmt.Errorf("console %s: %w", socket, err)
	}
	defer conn.Close()
	state, err := term.MakeRaw(int(in.Fd()))
	if err != nil {
		return fmt.Errorf("set the terminal up: %w", err)
	}
	defer term.Restore(int(in.Fd()), state) //nolint:errcheck // there is nothing left to do about it

	ended := make(chan error, 2)
	go func() { // ends with the program: a read from a terminal can't be interrupted
		err := forward(conn, in)
		ended <- err
	}()
	go func() {
		_, err := io.Copy(out, conn)
		ended <- ignoreReset(err)
	}()
	select {
	case err = <-ended:
	case <-ctx.Done():
		err = context.Cause(ctx)
	}
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
			return ignoreReset(err)
		}
		if escaped || errors.Is(err, io.EOF) {
			return ErrLeft
		}
		if err != nil {
			return fmt.Errorf("read the terminal: %w", err)
		}
	}
}

// ignoreReset takes the end of the connection, in whichever way, for the VM's end.
func ignoreReset(err error) error {
	if _, ok := errors.AsType[*net.OpError](err); ok {
		return nil
	}
	return err
}

func dial(ctx context.Context, socket string) (net.Conn, error) {
	ctx, cancel := context.WithTimeout(ctx, socketWait)
	defer cancel()
	for {
		conn, err := new(net.Dialer).DialContext(ctx, "unix", socket)
		if err == nil {
			return conn, nil
		}
		select {
		case <-ctx.Done():
			return nil, err
		case <-time.After(10 * time.Millisecond):
		}
	}
}
