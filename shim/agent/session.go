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

// Terminal is a console of a machine beside the serial one.
type Terminal struct {
	// Device is its path in a Linux guest, such as /dev/hvc1.
	Device string
	// Socket is the unix socket behind which QEMU has its other end.
	Socket string
}

// Size is a terminal's, in characters.
type Size struct {
	Rows, Columns uint16
}

// Session is a command with a terminal, and who sits at it.
type Session struct {
	Args []string
	// In is what is typed, nil for a terminal that is watched only. It is read
	// beyond the end of the session, until it ends itself.
	In  io.Reader
	Out io.Writer
	// Resize tells of changes of size; nil where there are none.
	Resize <-chan Size
}

// withTerminal has a command run with a terminal as its controlling one, in a
// session of its own. What it has to say of the terminal itself goes to the
// stderr that the agent captures; the command's is the terminal. That stays open
// from the first to the last: a terminal that is closed forgets its size and what
// was typed. The mark says that it is open.
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
	// settle is how long a terminal must be silent at the end of its command.
	settle = 100 * time.Millisecond
	// chunk is what is read from a terminal at once, in bytes.
	chunk = 32 << 10
	// sizeTime is how long a client may take to tell its terminal's size.
	sizeTime = 300 * time.Millisecond
)

// Interact runs a command with a terminal to its end and returns its exit code;
// see [Agent.Exec]. It needs a Linux guest with a shell and setsid.
func (a *Agent) Interact(ctx context.Context, s Session) (code int32, err error) {
	if err := (Command{Args: s.Args}).check(); err != nil {
		return 0, err
	}
	var t Terminal
	select {
	case t = <-a.terminals:
		defer func() { a.terminals <- t }()
	default:
		return 0, fmt.Errorf("%w: its %d terminals are in use: leave -t out, or try again later", ErrBusy, cap(a.terminals))
	}
	line, err := new(net.Dialer).DialContext(ctx, "unix", t.Socket)
	if err != nil {
		return 0, fmt.Errorf("%w: %w", ErrGone, err)
	}
	defer line.Close()
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	var beside sync.WaitGroup
	defer beside.Wait()
	// A client that takes nothing any more ends the session.
	mark := fmt.Sprintf("\x01%d\x02", time.Now().UnixNano())
	beside.Go(func() {
		in := bufio.NewReaderSize(late{line}, chunk)
		if !skip(in, mark) {
			return // the command did not come so far
		}
		if s.In != nil {
			go func() { _, _ = io.Copy(line, s.In) }() // ends with the client's stream
		}
		if _, err := io.Copy(s.Out, in); err != nil && !errors.Is(err, os.ErrDeadlineExceeded) {
			cancel(fmt.Errorf("deliver its output: %w", err))
		}
	})
	size := firstSize(ctx, s.Resize)
	beside.Go(func() { a.resize(ctx, t, s.Resize) })
	r, err := a.Exec(ctx, Command{Args: append([]string{"/bin/sh", "-c", withTerminal, "sh",
		t.Device, mark, strconv.Itoa(int(size.Rows)), strconv.Itoa(int(size.Columns))}, s.Args...)})
	cancel(nil)
	// What the guest has written is in the socket by now, or is about to be.
	_ = line.SetReadDeadline(time.Now().Add(settle))
	switch {
	case err != nil:
		return 0, err
	case len(r.Stderr) > 0:
		return 0, fmt.Errorf("%w: %s", ErrNoTerminal, clean(string(r.Stderr)))
	}
	return r.Code, nil
}

// late is a connection whose reader may come after its deadline, on a busy machine: what is there by then
// is read all the same.
type late struct{ net.Conn }

func (l late) Read(p []byte) (int, error) {
	n, err := l.Conn.Read(p)
	if errors.Is(err, os.ErrDeadlineExceeded) {
		_ = l.SetReadDeadline(time.Now().Add(settle / 2))
		n, err = l.Conn.Read(p)
	}
	return n, err
}

// skip reads up to the end of a mark that begins with a byte which is in it once,
// and tells whether it came: what an earlier command left is nobody's.
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

// firstSize is what the client says at its begin, if it does.
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

// resize tells the guest the sizes of the client's terminal, the latest of those
// that came meanwhile. A guest without stty goes on without.
func (a *Agent) resize(ctx context.Context, t Terminal, sizes <-chan Size) {
	for {
		select {
		case <-ctx.Done():
			return
		case size, ok := <-sizes:
			if !ok {
				return
			}
			size = latest(sizes, size)
			_, err := a.Exec(ctx, Command{Args: []string{"/bin/sh", "-c", `stty rows "$2" cols "$3" <"$1"`, "sh", t.Device,
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
