package lifecycle

import (
	"context"
	"log/slog"

	"github.com/nodevirt/nodevirt/shim/forks"
	"github.com/nodevirt/nodevirt/shim/record"
	"github.com/nodevirt/nodevirt/shim/vm/background"
	"github.com/nodevirt/nodevirt/shim/vm/table"
)

// forkCollector removes the memory of checkpoints that no VM uses.
type forkCollector struct {
	table *table.Table
	forks *forks.Store
	log   *slog.Logger
}

// run removes memory until ctx ends.
func (c *forkCollector) run(ctx context.Context) {
	for ctx.Err() == nil {
		if err := c.forks.Collect(c.used()); err != nil {
			c.log.Warn("removing the memory of checkpoints that no VM uses failed, retrying", "error", err)
		}
		background.Sleep(ctx, collectPause)
	}
}

// used returns a function that reports whether a VM that has not ended goes on from memory.
func (c *forkCollector) used() func(sum string) bool {
	if c.table.Refusals.Any() {
		return func(string) bool { return true } // what these guests go on from is not known
	}
	sums := map[string]bool{}
	for _, v := range c.table.All("") {
		if r := v.Record(); r.Restored != nil && r.State != record.Exited {
			sums[r.Restored.Memory.SHA256] = true
		}
	}
	return func(sum string) bool { return sums[sum] }
}
