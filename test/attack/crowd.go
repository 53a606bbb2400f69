package attack

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// Crowd are clients of a tenant that do the same again and again.
type Crowd struct {
	clients         sync.WaitGroup
	calls, failures atomic.Int64
	last            atomic.Pointer[error]
}

// pause is the time between two tries of a client that was refused.
const pause = 200 * time.Millisecond

// Gather has n clients call do until ctx ends.
func Gather(ctx context.Context, n int, do func(ctx context.Context, client int) error) *Crowd {
	c := &Crowd{}
	for i := range n {
		c.clients.Go(func() {
			for ctx.Err() == nil {
				c.calls.Add(1)
				err := do(ctx, i)
				if err == nil || ctx.Err() != nil {
					continue
				}
				c.failures.Add(1)
				c.last.Store(&err)
				select {
				case <-ctx.Done():
				case <-time.After(pause):
				}
			}
		})
	}
	return c
}

// Refused waits until a client of the crowd has been refused: then its bound is exceeded. It returns a function that waits for
// the clients' end.
func (c *Crowd) Refused(t *testing.T) (end func() error) {
	t.Helper()
	c.until(t, func() bool { return c.failures.Load() > 0 })
	return c.end(t)
}

// Waiting waits until each client has called: then all but those that the bound admits wait.
func (c *Crowd) Waiting(t *testing.T, n int) (end func() error) {
	t.Helper()
	c.until(t, func() bool { return c.calls.Load() >= int64(n) })
	return c.end(t)
}

// until waits as long as the test may run.
func (c *Crowd) until(t *testing.T, reached func() bool) {
	t.Helper()
	for !reached() {
		select {
		case <-t.Context().Done():
			t.Fatal("the attack does not reach its bound")
		case <-time.After(pause):
		}
	}
}

func (c *Crowd) end(t *testing.T) func() error {
	return func() error {
		c.clients.Wait()
		why := errors.New("none")
		if err := c.last.Load(); err != nil {
			why = *err
		}
		t.Logf("%d calls, %d refused; the last error: %.300s", c.calls.Load(), c.failures.Load(), why)
		if c.calls.Load() == 0 {
			return errors.New("no client has called")
		}
		return nil
	}
}
