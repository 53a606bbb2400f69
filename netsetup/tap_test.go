package netsetup

import (
	"os/exec"
	"sync"
	"testing"

	"github.com/vishvananda/netlink"
)

// TestTapIsFreeAtOnce: QEMU can open a tap right after it was created, also while this process
// starts others. A child has all descriptors until it runs its program.
func TestTapIsFreeAtOnce(t *testing.T) {
	newNode(t)
	stop := make(chan struct{})
	var children sync.WaitGroup
	defer children.Wait()
	defer close(stop)
	for range 4 {
		children.Go(func() {
			for {
				select {
				case <-stop:
					return
				default:
					_ = exec.Command("true").Run()
				}
			}
		})
	}
	const name = "tap-at-once"
	for range 60 {
		err := withHandle(func(h *netlink.Handle) error {
			tap, err := newTap(h, name, false)
			if err != nil {
				return err
			}
			_ = openTap(t, name).Close()
			return h.LinkDel(tap)
		})
		if err != nil {
			t.Fatal(err)
		}
	}
}
