package terminal

import (
	"context"
	"errors"
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
				return nil // QEMU has ended, or nobody waits any more
			}
		case <-k.left:
			return nil
		}
	}
}
