package wait_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"gotest.tools/v3/assert"

	"github.com/nodevirt/nodevirt/test/wait"
)

func TestSuccess(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tries := 0
		wait.Success(t, "the third try", func(context.Context) error {
			if tries++; tries < 3 {
				return errors.New("too early")
			}
			return nil
		})
		assert.Equal(t, tries, 3)
	})
}

// TestPatience: the last whole attempt is named, and a slow question is not asked all the time.
func TestPatience(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		begun, tries := time.Now(), 0
		err := wait.Do(t.Context(), func(ctx context.Context) error {
			tries++
			select {
			case <-ctx.Done():
				return ctx.Err()
			case <-time.After(time.Second):
				return fmt.Errorf("try %d", tries)
			}
		})
		assert.Equal(t, time.Since(begun), wait.Patience)
		assert.ErrorContains(t, err, "given up after 5m0s: try 1")
		assert.Assert(t, tries <= 151, "tries of a second each: %d", tries)
	})
}

func TestInterrupted(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	err := wait.Do(ctx, func(context.Context) error {
		cancel()
		return errors.New("broken")
	})
	assert.ErrorContains(t, err, "broken")
}
