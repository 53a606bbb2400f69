package terminal

import (
	"errors"
	"fmt"
	"net"
	"time"

	"golang.org/x/sys/unix"
)

const (
	// socketTime bounds the wait for the socket of a VM that has just been started.
	socketTime = 5 * time.Second
	socketPoll = 10 * time.Millisecond
	// lingerTime bounds how long QEMU may take to read the last keys after all clients have left.
	lingerTime = time.Second
	// keyPoll is the first pause before checking whether QEMU has read a key.
	keyPoll = 20 * time.Microsecond
)

// wire is the connection to QEMU's socket, for input only: its read side is shut
// down. QEMU writes output both to the socket and to the file. If the socket would
// block, it retries and appends to the file again, so that the file and the log
// would contain bytes twice, which happens within milliseconds on a busy node (QEMU
// 7.2, qemu_chr_write_buffer). If writing to the socket fails for good, QEMU appends once.
//
// This has a cost. If the guest's port is full at that moment, QEMU treats the
// failure as the client's end, and drops unread input. So wire sends each key after
// QEMU has read the one before, and sends a dropped key again over a new connection.
type wire struct {
	socket string
	left   <-chan struct{} // closed when the last user has left
	conn   *net.UnixConn   // nil while there is none
	until  time.Time       // until when to carry keys; zero while there are users
}

var (
	errLeft    = errors.New("no client types any more")
	errDropped = errors.New("QEMU dropped the key")
)

func (w *wire) close() {
	if w.conn != nil {
		_ = w.conn.Close()
		w.conn = nil
	}
}

// plug connects, and retries for socketTime while there are users.
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

// carry returns when QEMU has read all keys, or with an error if it reads no more.
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

// press sends one key, and waits until QEMU has read it.
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
				// In this order: the kernel reports the drop before it drops the data.
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

// wait waits for d. It returns early if the last user leaves, and fails lingerTime after that.
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
