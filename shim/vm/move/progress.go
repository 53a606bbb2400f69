package move

import (
	"context"
	"time"

	"github.com/nodevirt/nodevirt/shim/migrate/handover"
	"github.com/nodevirt/nodevirt/shim/vm/background"
	"github.com/nodevirt/nodevirt/shim/vm/table"
)

const (
	// measurePause is the time between two questions to libvirt for a copy's progress, and
	// measureTime bounds one.
	measurePause = time.Second
	measureTime  = 5 * time.Second
)

// QEMU stops the guest when what is left takes no longer than a limit. Its own limit suits guests that
// write much, and others would stop for nearly as long. So the limit is low first, and doubles each second
// of the copy up to QEMU's.
const (
	firstDowntime = 30 * time.Millisecond
	lastDowntime  = 300 * time.Millisecond
)

// limitDowntime sets QEMU's limit. Without it, the guest stops for longer.
func (m *sources) limitDowntime(ctx context.Context, v *table.VM, to time.Duration) {
	within, cancel := background.AtMost(ctx, measureTime)
	defer cancel()
	if err := m.o.Copies.LimitDowntime(within, v.Record().Domain.UUID, to); err != nil && ctx.Err() == nil {
		table.Logger(m.o.Logger, v.Record()).Warn("limiting a migration's downtime failed", "error", err)
	}
}

// measure keeps the progress of a copy, and lets the guest stop for longer the longer it takes. A libvirtd
// that hangs leaves the progress unknown.
func (m *sources) measure(ctx context.Context, one *migration, v *table.VM) {
	defer one.job.Store(nil)
	downtime := firstDowntime
	for ctx.Err() == nil && one.ends().Record().State == handover.Sending {
		within, cancel := background.AtMost(ctx, measureTime)
		job, err := m.o.Copies.Job(within, v.Record().Domain.UUID)
		cancel()
		if err != nil {
			job = nil
		}
		one.job.Store(job)
		background.Sleep(ctx, measurePause)
		if job != nil && downtime < lastDowntime && ctx.Err() == nil {
			downtime = min(2*downtime, lastDowntime)
			m.limitDowntime(ctx, v, downtime)
		}
	}
}
