package background_test

import (
	"errors"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"gotest.tools/v3/assert"

	"github.com/nodevirt/nodevirt/shim/vm/background"
)

// TestVolume: an access that hangs keeps no caller longer than its context. What follows it is not
// begun before it has returned, and not at all for a caller that has left.
func TestVolume(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		v := background.NewVolume()
		failed := errors.New("read-only")
		assert.NilError(t, v.Do(t.Context(), func() error { return nil }))
		assert.Assert(t, errors.Is(v.Do(t.Context(), func() error { return failed }), failed))
		assert.Assert(t, !v.Busy())

		var order []string
		hangs := make(chan struct{})
		within := func(name string, wait <-chan struct{}) error {
			ctx, cancel := background.AtMost(t.Context(), time.Second)
			defer cancel()
			return v.Do(ctx, func() error {
				order = append(order, name)
				if wait != nil {
					<-wait
				}
				return nil
			})
		}
		err := within("hangs", hangs)
		assert.Assert(t, errors.Is(err, background.ErrVolume))
		assert.ErrorContains(t, err, "it took more than 1s")
		assert.Assert(t, errors.Is(within("never", nil), background.ErrVolume))
		v.Later(func() { order = append(order, "later") })
		assert.Assert(t, v.Busy())
		go func() {
			time.Sleep(500 * time.Millisecond)
			close(hangs)
		}()
		assert.NilError(t, within("last", nil))
		assert.Assert(t, slices.Equal(order, []string{"hangs", "later", "last"}), order)
		assert.Assert(t, !v.Busy())
	})
}
