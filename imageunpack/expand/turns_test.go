package expand_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/nodevirt/nodevirt/imageunpack/expand"
	"github.com/nodevirt/nodevirt/internal/bounds"
)

// TestTurns: a namespace with a hundred conversions does not keep another's one from its turn.
func TestTurns(t *testing.T) {
	for _, c := range []struct {
		turns int
		first int // among so many turns are those of the other namespaces
	}{
		{1, 3}, {2, 4}, {3, 5},
	} {
		synctest.Test(t, func(t *testing.T) {
			turns := expand.NewTurns(c.turns)
			var order []string
			running := map[string]int{}
			var mu sync.Mutex
			convert := func(namespace string) {
				release, err := turns.Take(t.Context(), namespace, func() {})
				if err != nil {
					t.Error(err)
					return
				}
				mu.Lock()
				order = append(order, namespace)
				if running[namespace]++; running[namespace] > max(1, c.turns-1) {
					t.Errorf("%d of %d turns are those of %s", running[namespace], c.turns, namespace)
				}
				mu.Unlock()
				time.Sleep(time.Minute)
				mu.Lock()
				running[namespace]--
				mu.Unlock()
				release()
			}
			for range 100 {
				go convert("many")
				synctest.Wait()
			}
			for _, other := range []string{"one", "two"} {
				go convert(other)
				synctest.Wait()
				time.Sleep(time.Second)
			}
			time.Sleep(200 * time.Minute)
			mu.Lock()
			defer mu.Unlock()
			if got := order[:c.first]; !slices.Contains(got, "one") || !slices.Contains(got, "two") {
				t.Errorf("%d turns: the first are those of %q", c.turns, got)
			}
			if len(order) != 102 {
				t.Errorf("%d turns", len(order))
			}
		})
	}
}

// TestSlowTurns: conversions that do not end, as of VMs with hardly any processor time, leave their turns to others, and
// count as their namespaces' until they end.
func TestSlowTurns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		turns := expand.NewTurns(2)
		take := func(namespace string) (release func(), waited time.Duration) {
			began := time.Now()
			release, err := turns.Take(t.Context(), namespace, func() {})
			if err != nil {
				t.Fatal(err)
			}
			return release, time.Since(began)
		}
		slow, _ := take("slow")
		alsoSlow, _ := take("also slow")
		for range 3 {
			release, waited := take("victim")
			if waited > bounds.TurnTime {
				t.Errorf("the neighbour waited for %v", waited)
			}
			release()
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
		if _, err := turns.Take(ctx, "slow", func() {}); err == nil {
			t.Error("the namespace of slow conversions got another turn")
		}
		cancel()
		slow()
		alsoSlow()
		// No turn came to be, and none is lost.
		one, _ := take("one")
		two, _ := take("two")
		ctx, cancel = context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		if _, err := turns.Take(ctx, "three", func() {}); err == nil {
			t.Error("a third conversion runs")
		}
		one()
		two()
	})
}

// TestTurnsLeft: a conversion that is given up gives its turn on.
func TestTurnsLeft(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		turns := expand.NewTurns(1)
		release, err := turns.Take(t.Context(), "a", func() { t.Error("it waits") })
		if err != nil {
			t.Fatal(err)
		}
		why := errors.New("the pod is removed")
		for i := range 10 {
			ctx, cancel := context.WithCancelCause(t.Context())
			waits := false
			go func() { time.Sleep(time.Second); cancel(why) }()
			if _, err := turns.Take(ctx, fmt.Sprint(i%2), func() { waits = true }); !errors.Is(err, why) || !waits {
				t.Errorf("given up: %v", err)
			}
		}
		release()
		if release, err = turns.Take(t.Context(), "b", func() { t.Error("it waits") }); err != nil {
			t.Fatal(err)
		}
		release()
	})
}
