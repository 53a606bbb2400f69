package domain

import (
	"fmt"
	"sync"

	"libvirt.org/go/libvirt"
)

// eventLoop starts libvirt's event loop. It is state of the process, not of a
// driver, because it is so in libvirt: one implementation can be registered,
// once, before the first connection, and never be taken back. The loop's
// goroutine therefore lives as long as the process; it sleeps in poll(2) while
// no connection has anything to say.
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
