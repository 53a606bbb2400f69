package disk

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// TestManyViewsEnd: disks whose views end at once, as when memory runs out, come back at once.
func TestManyViewsEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d, _ := disks(t)
		var mu sync.Mutex
		var back, want []string
		ctx, cancel := context.WithCancel(t.Context())
		var watching sync.WaitGroup
		watching.Go(func() {
			d.Keeper.Watch(ctx, func(_ context.Context, id string) {
				mu.Lock()
				defer mu.Unlock()
				back = append(back, id)
			})
		})
		for n := range 50 {
			id := fmt.Sprintf("%02d", n)
			want = append(want, id)
			d.Keeper.ended <- id + ".disk"
		}
		time.Sleep(viewAgain)
		synctest.Wait()
		mu.Lock()
		slices.Sort(back)
		if !slices.Equal(back, want) {
			t.Errorf("put back after %s: %q", viewAgain, back)
		}
		mu.Unlock()
		cancel()
		watching.Wait()
	})
}
