package move

import (
	"context"
	"fmt"
	"time"

	"github.com/nodevirt/nodevirt/shim/domain"
	"github.com/nodevirt/nodevirt/shim/migrate/handover"
)

// copyBounds limit a copy; 0 is no limit.
type copyBounds struct {
	timeout, stall time.Duration
	// perGiB takes the place of timeout: it is that of a GiB of memory, which are bytes, or of a disk.
	perGiB time.Duration
	memory int64
	// pause pauses the guest after that, which then counts twice; nil for a copy that ends then.
	pause func(context.Context) error
}

// limit returns how long the copy may take. It grows when libvirt knows the disks' sizes.
func (b copyBounds) limit(job *domain.Job) time.Duration {
	if b.perGiB == 0 {
		return b.timeout
	}
	const gib, most = 1 << 30, 365 * 24 * time.Hour
	size := b.memory
	if job != nil { // the guest may have got memory
		size = max(size, int64(min(job.Total-job.DiskTotal, 1<<60))) + int64(min(job.DiskTotal, 1<<60))
	}
	return time.Duration(min(max((size+gib-1)/gib, 1), int64(most/b.perGiB)+1) * int64(b.perGiB))
}

// bound cancels a copy that takes too long, or stops.
func (g *migration) bound(ctx context.Context, b copyBounds) {
	begun, last, moved, paused, longest := time.Now(), int64(-1), time.Now(), false, time.Duration(0)
	for {
		select {
		case <-ctx.Done():
			return
		case <-time.After(time.Second):
		}
		if g.ends().Record().State != handover.Sending {
			return // the copy is complete
		}
		if n := g.copied.Load(); n != last {
			last, moved = n, time.Now()
		}
		longest = max(longest, b.limit(g.job.Load())) // libvirt may have no answer for a moment
		limit := longest
		if paused {
			limit += limit
		}
		switch {
		case limit > 0 && time.Since(begun) > limit && b.pause != nil:
			if err := b.pause(ctx); err != nil {
				g.stop(fmt.Errorf("the copy took more than %s and has been aborted: its guest can't be paused: %w", limit, err))
			}
			paused, b.pause = true, nil
		case limit > 0 && time.Since(begun) > limit:
			g.stop(fmt.Errorf("the copy took more than %s and has been aborted", limit))
		case b.stall > 0 && time.Since(moved) > b.stall:
			g.stop(fmt.Errorf("nothing was copied for %s: the copy has been aborted", b.stall))
		}
	}
}
