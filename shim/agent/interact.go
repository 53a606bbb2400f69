package agent

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"strconv"
	"sync"
	"time"
)

// Terminal is a virtio console of a VM, which commands use as their terminal.
type Terminal struct {
	// Device is its path in a Linux guest, such as /dev/hvc1.
	Device string
	// Socket is the unix socket that QEMU connects to the console.
	Socket string
}

// Size is the size of a terminal, in characters.
type Size struct {
	Rows, Columns uint16
}

// Session is a command with a terminal, and the streams of its client.
type Session struct {
	Args []string
	// In is the client's input, nil if it sends none. A read of In may continue
	// after the session, until In ends.
	In  io.Reader
	Out io.Writer
	// Resize carries the terminal's sizes; nil if the client sends none.
	Resize <-chan Size
}

// withTerminal runs a command in its own session, with a terminal as its
// controlling one. The script's own errors go to the stderr that the agent
// captures; the command's streams are the terminal. The script keeps the terminal
// open throughout, since a closed terminal loses its size and pending input. It
// prints the mark once the terminal is open.
const withTerminal = `tty=$1 mark=$2 rows=$3 cols=$4; shift 4
[ -c "$tty" ] || { echo "the guest has no $tty: its kernel needs virtio_console" >&2; exit 1; }
command -v setsid >/dev/null || { echo "the guest has no setsid, of util-linux or busybox" >&2; exit 1; }
setsid -w true 2>/dev/null && wait=-w
exec 3<>"$tty" || exit 1
stty sane <&3 2>/dev/null
[ "$rows" = 0 ] || stty rows "$rows" cols "$cols" <&3 2>/dev/null
printf %s "$mark" >&3
export TERM="${TERM:-xterm}"
exec setsid -c $wait "$@" <&3 >&3 2>&3 3>&-`

const (
	// settle is how long a terminal must be silent after its command has ended.
	settle = 100 * time.Millisecond
	// chunk is the size of a read from a terminal, in bytes.
	chunk = 32 << 10
	// sizeTime is how long a client may take to send its terminal's size.
	sizeTime = 300 * time.Millisecond
)

// Interact runs a command with a terminal and returns its exit code; see
// [Commands.Exec]. The guest must be Linux with a POSIX shell and setsid.
func (c *Commands) Interact(ctx context.Context, s Session) (code int32, err error) {
	if err := (Command{Args: s.Args}).check(); err != nil {
		return 0, err
	}
	var t Terminal
	select {
	case t = <-c.terminals:
		defer func() { c.terminals <- t }()
	default:
		return 0, fmt.Errorf("%w: its %d terminals are in use: omit -t, or try again later", ErrBusy, cap(c.terminals))
	}
	line, err := new(net.Dialer).DialContext(ctx, "unix", t.Socket)
	if err != nil {
		return 0, fmt.Errorf("%w: %w", ErrGone, err)
	}
	defer line.Close()
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	var copying sync.WaitGroup
	defer copying.Wait()
	// A client that no longer accepts output ends the session.
	mark := fmt.Sprintf("\x01%d\x02", time.Now().UnixNano())
	copying.Go(func() {
		in := bufio.NewReaderSize(overdueReader{line}, chunk)
		if !skip(in, mark) {
			return // the command did not start
		}
		if s.In != nil {
			go func() { _, _ = io.Copy(line, s.In) }() // ends with the client's stream
		}
		if _, err := io.Copy(s.Out, in); err != nil && !errors.Is(err, os.ErrDeadlineExceeded) {
			cancel(fmt.Errorf("deliver its output: %w", err))
		}
	})
	size := firstSize(ctx, s.Resize)
	copying.Go(func() { c.resize(ctx, t, s.Resize) })
	r, err := c.Exec(ctx, Command{Args: append([]string{"/bin/sh", "-c", withTerminal, "sh",
		t.Device, mark, strconv.Itoa(int(size.Rows)), strconv.Itoa(int(size.Columns))}, s.Args...)})
	cancel(nil)
	// The guest's output is in the socket by now, or arrives soon.
	_ = line.SetReadDeadline(time.Now().Add(settle))
	switch {
	case err != nil:
		return 0, err
	case len(r.Stderr) > 0:
		return 0, fmt.Errorf("%w: %s", ErrNoTerminal, clean(string(r.Stderr)))
	}
	return r.Code, nil
}

// overdueReader is a connection whose reader may be scheduled after its deadline,
// on a busy node. It reads what has arrived by then.
type overdueReader struct{ net.Conn }

func (l overdueReader) Read(p []byte) (int, error) {
	n, err := l.Conn.Read(p)
	if errors.Is(err, os.ErrDeadlineExceeded) {
		_ = l.SetReadDeadline(time.Now().Add(settle / 2))
		n, err = l.Conn.Read(p)
	}
	return n, err
}

// skip reads up to the end of a mark, to drop the output of earlier commands, and
// reports whether the mark came. The mark's first byte must occur in it once.
func skip(in *bufio.Reader, mark string) bool {
	for seen := 0; seen < len(mark); {
		b, err := in.ReadByte()
		switch {
		case err != nil:
			return false
		case b == mark[seen]:
			seen++
		case b == mark[0]:
			seen = 1
		default:
			seen = 0
		}
	}
	return true
}

// firstSize returns the size that the client sends first, or the zero Size if none comes in time.
func firstSize(ctx context.Context, sizes <-chan Size) Size {
	if sizes == nil {
		return Size{}
	}
	select {
	case size := <-sizes:
		return size
	case <-time.After(sizeTime):
	case <-ctx.Done():
	}
	return Size{}
}

// resize applies the latest size of the client's terminal in the guest. It gives up
// if the guest has no stty.
func (c *Commands) resize(ctx context.Context, t Terminal, sizes <-chan Size) {
	for {
		select {
		case <-ctx.Done():
			return
		case size, ok := <-sizes:
			if !ok {
				return
			}
			size = latest(sizes, size)
			_, err := c.Exec(ctx, Command{Args: []string{"/bin/sh", "-c", `stty rows "$2" cols "$3" <"$1"`, "sh", t.Device,
				strconv.Itoa(int(size.Rows)), strconv.Itoa(int(size.Columns))}})
			if err != nil && errors.Is(err, ErrNoProgram) {
				return
			}
		}
	}
}

func latest(sizes <-chan Size, size Size) Size {
	for {
		select {
		case next, ok := <-sizes:
			if !ok {
				return size
			}
			size = next
		default:
			return size
		}
	}
}
