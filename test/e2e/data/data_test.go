//go:build data

package data

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"
)

// TestData: no sequence of steps loses a mark, or shows a guest the disk of another.
func TestData(t *testing.T) {
	begun := time.Now()
	for i := range *sequences {
		number := *seed + int64(i)
		t.Run(fmt.Sprintf("seed=%d", number), func(t *testing.T) {
			t.Parallel()
			if i > 0 && time.Since(begun) > *limit {
				t.Skipf("the time of -time=%s is over", *limit)
			}
			run(t, number)
		})
	}
}

// run runs one sequence.
func run(t *testing.T, number int64) {
	w := &world{
		T: t, rng: rand.New(rand.NewPCG(uint64(number), 0)), prefix: fmt.Sprintf("s%d", number),
		disks: map[string]*disk{}, vms: map[string]*machine{}, snapshots: map[string]*snapshot{},
	}
	t.Cleanup(w.remove)
	w.create()
	w.check()
	for range *steps {
		w.step()
		if t.Failed() {
			t.Fatalf("steps:\n%s", w.log.String())
		}
		w.check()
	}
	t.Logf("steps:\n%s", w.log.String())
}
