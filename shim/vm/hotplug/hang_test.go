package hotplug_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"gotest.tools/v3/assert"

	"github.com/nodevirt/nodevirt/shim/record"
	"github.com/nodevirt/nodevirt/shim/vm/background"
	"github.com/nodevirt/nodevirt/shim/vm/hotplug/order"
	"github.com/nodevirt/nodevirt/shim/vm/vmerrors"
)

// turn checks that the VM's turn is free, as a stop needs it.
func (r *rig) turn(t *testing.T) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Millisecond)
	defer cancel()
	unlock, err := r.vm.Lock(ctx)
	assert.NilError(t, err)
	unlock()
}

// TestVolumeHangs: a volume that does not answer when it is plugged or grown keeps neither the VM's turn, for which a stop
// waits, nor the VM's other disks. When it answers after all, nothing of it is left.
func TestVolumeHangs(t *testing.T) {
	for _, how := range []string{"attach", "grow"} {
		synctest.Test(t, func(t *testing.T) {
			r := newRig(t)
			before := 0
			if how == "grow" {
				_, err := r.attach(t, "v1")
				assert.NilError(t, err)
				before = 1
			}
			r.hangs = make(chan struct{})
			ended := make(chan error, 1)
			give := func() (order.Disk, error) {
				if how == "grow" {
					return r.order(t, order.Grow, `{"name": "v1", "size": 1073741824}`)
				}
				return r.attach(t, "v1")
			}
			go func() {
				_, err := give()
				ended <- err
			}()
			synctest.Wait()
			r.turn(t)
			_, err := give()
			assert.Assert(t, errors.Is(err, vmerrors.ErrState), "%v", err)
			_, err = r.detach(t, "v1")
			assert.Assert(t, errors.Is(err, vmerrors.ErrState), "%v", err)
			time.Sleep(time.Minute)
			assert.Assert(t, errors.Is(<-ended, background.ErrVolume))
			r.turn(t)
			_, err = give()
			assert.Assert(t, errors.Is(err, background.ErrVolume), "%v", err)
			hangs := r.hangs
			r.hangs = nil
			_, err = r.attach(t, "v2")
			assert.NilError(t, err)
			close(hangs)
			synctest.Wait()
			time.Sleep(time.Minute)
			r.has(t, record.Attached, before+1)
			_, err = give()
			assert.NilError(t, err)
			r.has(t, record.Attached, 2)
		})
	}
}
