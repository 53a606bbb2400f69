package terminal

import (
	"context"
	"errors"
)

// errUnplugged is returned after the connection for input has failed.
var errUnplugged = errors.New("the console no longer accepts input")

// keyboard is the connection to a console's socket that all clients share.
type keyboard struct {
	socket    string
	users     int // guarded by Terminals.mu
	pressed   chan []byte
	left      chan struct{} // closed when the last user has left
	unplugged chan struct{} // closed when keys get nowhere
}

// keyboard returns the shared connection of a console. The caller must release it.
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
				t.log.Warn("cannot send input to a console", "socket", socket, "error", err)
			}
		}()
	}
	k.users++
	return k
}

// release closes a keyboard after its last user.
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

// press sends keys. It waits while the guest does not read its console, and drops
// the keys if ctx ends.
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

// run types pressed keys until the last user has left or QEMU has ended. It returns
// an error if it could not connect.
func (k *keyboard) run() error {
	defer close(k.unplugged)
	w := &wire{socket: k.socket, left: k.left}
	defer w.close()
	if err := w.plug(); err != nil {
		return err
	}
	for {
		select {
		case keys := <-k.pressed:
			if w.carry(keys) != nil {
				return nil // QEMU has ended, or no caller waits any more
			}
		case <-k.left:
			return nil
		}
	}
}
