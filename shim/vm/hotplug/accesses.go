package hotplug

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"github.com/nodevirt/nodevirt/shim/vm/background"
	"github.com/nodevirt/nodevirt/shim/vm/vmerrors"
)

// errEnded is why an access is given up.
var errEnded = errors.New("the guest ended")

// accesses are the volumes of a VM's disks that are being opened. A volume may keep its caller for ever: no access happens
// during the VM's turn, for which a stop waits.
type accesses struct {
	mu    sync.Mutex
	disks map[string]*access // by the disks' names
}

// access is the volume of one disk.
type access struct {
	volume background.Volume
	held   bool // an order works on the disk
}

// take begins an order's access to the volume of a disk. One that a former order has not come back from is not accessed again.
func (a *accesses) take(name string) (*access, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for other, one := range a.disks {
		if !one.held && !one.volume.Busy() {
			delete(a.disks, other)
		}
	}
	switch one := a.disks[name]; {
	case one != nil && one.held:
		return nil, fmt.Errorf("%w: another order for disk %q is carried out", vmerrors.ErrState, name)
	case one != nil:
		return nil, fmt.Errorf("disk %q: a former order: %w", name, background.ErrVolume)
	case len(a.disks) >= maxPlugged:
		return nil, fmt.Errorf("%w: %d volumes of this VM's: %w", vmerrors.ErrRange, len(a.disks), background.ErrVolume)
	}
	if a.disks == nil {
		a.disks = map[string]*access{}
	}
	one := &access{held: true}
	a.disks[name] = one
	return one, nil
}

// leave ends an order's access.
func (a *accesses) leave(one *access) {
	a.mu.Lock()
	defer a.mu.Unlock()
	one.held = false
}

// has reports whether an order works on a disk.
func (a *accesses) has(name string) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.disks[name] != nil && a.disks[name].held
}

// do calls open, which accesses the volume, for a limited time. If that is not enough, late is called when open has returned
// all the same.
func (one *access) do(ctx context.Context, ended <-chan struct{}, open func(context.Context) error, late func()) error {
	ctx, cancel := background.AtMost(ctx, patience)
	defer cancel()
	within, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	go func() {
		select {
		case <-ended:
			stop(errEnded)
		case <-within.Done():
		}
	}()
	returned := false
	err := one.volume.Do(within, func() error {
		err := open(ctx)
		returned = true // before Do returns, or for late alone
		return err
	})
	if errors.Is(err, background.ErrVolume) {
		one.volume.Later(func() {
			if returned {
				late()
			}
		})
	}
	return err
}
