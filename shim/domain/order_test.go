package domain

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
)

// TestOrdersLeaveWorkers: calls of one namespace that libvirtd does not answer take part of its workers, also after
// their callers have gone. Starts and stops wait for none, and another namespace's calls have room.
func TestOrdersLeaveWorkers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := &Connection{orders: newOrders()}
		var leaves []func()
		flood := func(namespace string) (entered int) {
			ctx, cancel := context.WithCancel(Ordered(t.Context(), namespace))
			results := make(chan func(), 100)
			failed := make(chan error, 100)
			for range 100 {
				go func() {
					leave, err := c.enter(ctx)
					if err != nil {
						failed <- err
						return
					}
					results <- leave
				}()
			}
			synctest.Wait()
			entered = len(results)
			cancel() // the callers give up; libvirtd has not answered
			synctest.Wait()
			if len(failed) != 100-entered {
				t.Errorf("%d of %d calls that wait ended with their callers", len(failed), 100-entered)
			}
			for range entered {
				leaves = append(leaves, <-results)
			}
			return entered
		}
		if n := flood("greedy"); n != NamespaceOrders {
			t.Errorf("%d calls of one namespace run", n)
		}
		if n := flood("greedy"); n != 0 {
			t.Errorf("%d calls more run after the callers of the first have gone", n)
		}
		if n := flood("neighbour"); n != MaxOrders-NamespaceOrders {
			t.Errorf("%d calls of its neighbour run", n)
		}
		if _, err := c.enter(t.Context()); err != nil { // a start or a stop
			t.Error(err)
		}
		for _, leave := range leaves {
			leave()
		}
		if _, err := c.enter(Ordered(t.Context(), "greedy")); err != nil {
			t.Error(err)
		}
		ended, cancel := context.WithCancel(Ordered(t.Context(), "greedy"))
		cancel()
		if _, err := c.enter(ended); err != nil && !errors.Is(err, context.Canceled) {
			t.Error(err)
		}
	})
}
