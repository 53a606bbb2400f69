package domain

import (
	"fmt"
	"sync"

	"libvirt.org/go/libvirt"
)

// eventLoop starts libvirt's event loop. As in libvirt, the loop belongs to the
// process and not to a driver: a program can register one implementation, once,
// before the first connection, and can't remove it. So the loop's goroutine lives
// as long as the process. It sleeps in poll(2) while the connections are idle.
var eventLoop = sync.OnceValue(func() error {
	if err := libvirt.EventRegisterDefaultImpl(); err != nil {
		return fmt.Errorf("register libvirt's event loop: %w", plain(err))
	}
	go func() {
		for {
			// An error here is one of poll(2) itself; the next round tries again.
			_ = libvirt.EventRunDefaultImpl()
		}
	}()
	return nil
})
