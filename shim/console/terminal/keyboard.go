package terminal

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"time"

	"golang.org/x/sys/unix"
)

const (
	// socketTime bounds how long the socket of a machine that has just been
	// started may take.
	socketTime = 5 * time.Second
	socketPoll = 10 * time.Millisecond
	// lingerTime is what QEMU has to take the last keys in when all clients have left.
	lingerTime = time.Second
)

// errUnplugged says that nothing that is typed gets to the guest any more.
var errUnplugged = errors.New("the console takes no input any more")

// keyboard is the one connection to a console's socket, for all who type.
type keyboard struct {
	socket    string
	users     int // guarded by Terminals.mu
	pressed   chan []byte
	left      chan struct{} // closed when the last user has left
	unplugged chan struct{} // closed when keys get nowhere
}

// keyboard joins those who type at a console. The caller releases it.
func (t *Terminals) keyboard(socket string) *keyboard {
	t.mu.Lock()
	defer t.mu.Unlock()
	k := t.keyboards[socket]
	if k == nil || !k.works() {
		k = &keyboard{
			socket: socket, pressed: make(chan []byte),
			left: make(chan struct{}), unplugged: make(chan struct{}),
		}
		t.keyboards[socket] = k
		go func() {
			if err := k.run(); err != nil {
				t.log.Warn("typing at a console is not possible", "socket", socket, "error", err)
			}
		}()
	}
	k.users++
	return k
}

// release unplugs a keyboard that nobody uses any more.
func (t *Terminals) release(k *keyboard) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if k.users--; k.users > 0 {
		return
	}
	if t.keyboards[k.socket] == k {
		delete(t.keyboards, k.socket)
	}
	close(k.left)
}

func (k *keyboard) works() bool {
	select {
	case <-k.unplugged:
		return false
	default:
		return true
	}
}

// press hands keys on. A guest that doesn't read its console makes it wait; the
// keys of one who leaves meanwhile are dropped.
func (k *keyboard) press(ctx context.Context, keys []byte) error {
	select {
	case k.pressed <- keys:
		return nil
	case <-k.unplugged:
		return errUnplugged
	case <-ctx.Done():
		return ctx.Err()
	}
}

// run types what is pressed until the last user has left or QEMU has ended. An
// error says that there was no connection at all.
func (k *keyboard) run() error {
	conn, err := k.dial()
	if err != nil || conn == nil {
		close(k.unplugged)
		return err
	}
	defer func() { _ = conn.Close() }()
	go k.drain(conn)
	go func() { // also if a write waits for a guest that doesn't read
		select {
		case <-k.left:
			_ = conn.SetWriteDeadline(time.Now().Add(lingerTime)) // it fails where the connection has gone
		case <-k.unplugged:
		}
	}()
	for {
		select {
		case keys := <-k.pressed:
			if _, err := conn.Write(keys); err != nil {
				return nil // QEMU has ended, or nobody waits any more
			}
		case <-k.left:
			linger(conn)
			return nil
		case <-k.unplugged:
			return nil
		}
	}
}

// dial returns nil if the last user leaves meanwhile.
func (k *keyboard) dial() (*net.UnixConn, error) {
	for end := time.Now().Add(socketTime); ; {
		conn, err := net.DialUnix("unix", nil, &net.UnixAddr{Name: k.socket, Net: "unix"})
		if err == nil {
			return conn, nil
		}
		if time.Now().After(end) {
			return nil, fmt.Errorf("connect to the console's socket: %w", err)
		}
		select {
		case <-k.left:
			return nil, nil
		case <-time.After(socketPoll):
		}
	}
}

// drain takes what QEMU sends, and the file has too: a socket that is full
// would stop the guest's serial port.
func (k *keyboard) drain(conn net.Conn) {
	_, _ = io.Copy(io.Discard, conn) // it ends with the connection, from either side
	close(k.unplugged)
}

// linger waits until QEMU has read the last keys: those that are on the way when
// the connection ends could be lost.
func linger(conn *net.UnixConn) {
	raw, err := conn.SyscallConn()
	if err != nil {
		return
	}
	for end := time.Now().Add(lingerTime); time.Now().Before(end); time.Sleep(socketPoll) {
		unread := 0
		err := raw.Control(func(fd uintptr) { unread, _ = unix.IoctlGetInt(int(fd), unix.TIOCOUTQ) })
		if err != nil || unread == 0 {
			return
		}
	}
}
