package terminal

import (
	"errors"
	"fmt"
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
	// keyPoll is how soon it is looked whether QEMU has taken a key, at first.
	keyPoll = 20 * time.Microsecond
)

// wire is the way to QEMU, for keys alone: its other half is shut. QEMU sends to
// the socket what it appends to the file. A socket that takes no more makes it
// try again, and append again: the file, and so the log, would have bytes twice,
// as happens within milliseconds to whoever reads on a busy machine (QEMU 7.2,
// qemu_chr_write_buffer). What fails for good it appends once.
//
// It has a price. Where the guest's port is full of keys in that moment, QEMU
// takes the failure for the client's end, and drops what it has not read. So each
// key is sent when the one before has been taken, and sent again over a new
// connection where it was dropped.
type wire struct {
	socket string
	left   <-chan struct{} // closed when the last user has left
	conn   *net.UnixConn   // nil while there is none
	until  time.Time       // of the keys that are to be carried yet; zero while there are users
}

var (
	errLeft    = errors.New("nobody types any more")
	errDropped = errors.New("QEMU dropped the key")
)

func (w *wire) close() {
	if w.conn != nil {
		_ = w.conn.Close()
		w.conn = nil
	}
}

// plug connects, for as long as the socket may take and somebody waits.
func (w *wire) plug() error {
	for end := time.Now().Add(socketTime); ; {
		conn, err := net.DialUnix("unix", nil, &net.UnixAddr{Name: w.socket, Net: "unix"})
		if err == nil {
			w.conn = conn
			return conn.CloseRead()
		}
		if time.Now().After(end) {
			return fmt.Errorf("connect to the console's socket: %w", err)
		}
		if err := w.wait(socketPoll); err != nil {
			return err
		}
		if !w.until.IsZero() {
			return errLeft
		}
	}
}

// carry returns when QEMU has taken all keys. An error says that it takes no more.
func (w *wire) carry(keys []byte) error {
	for i := range keys {
		for {
			if w.conn == nil {
				if err := w.plug(); err != nil {
					return err
				}
			}
			err := w.press(keys[i : i+1])
			if err == nil {
				break
			}
			w.close()
			if errors.Is(err, errLeft) || !w.until.IsZero() {
				return err
			}
			if err := w.wait(socketPoll); err != nil {
				return err
			}
		}
	}
	return nil
}

// press sends one key, and waits until it is taken.
func (w *wire) press(key []byte) error {
	if _, err := w.conn.Write(key); err != nil {
		return err
	}
	raw, err := w.conn.SyscallConn()
	if err != nil {
		return err
	}
	for pause := keyPoll; ; pause = min(2*pause, socketPoll) {
		unread, fate := 0, 0
		controlErr := raw.Control(func(fd uintptr) {
			if unread, err = unix.IoctlGetInt(int(fd), unix.TIOCOUTQ); err == nil && unread == 0 {
				// In this order: the kernel notes first what it drops then.
				fate, err = unix.GetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_ERROR)
			}
		})
		switch {
		case controlErr != nil || err != nil:
			return errors.Join(controlErr, err)
		case fate != 0:
			return errDropped
		case unread == 0:
			return nil
		}
		if err := w.wait(pause); err != nil {
			return err
		}
	}
}

// wait is short of d if the last user leaves meanwhile. Some time after that it fails.
func (w *wire) wait(d time.Duration) error {
	left := w.left
	if !w.until.IsZero() {
		left = nil
		if time.Now().After(w.until) {
			return errLeft
		}
	}
	select {
	case <-left:
		w.until = time.Now().Add(lingerTime)
	case <-time.After(d):
	}
	return nil
}
