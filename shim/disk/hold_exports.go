package disk

import (
	"context"
	"errors"
	"time"

	"github.com/nodevirt/nodevirt/imageunpack/iscsi"
)

// holdEvery is how long two nodes could use one export at the same time.
const holdEvery = 2 * time.Second

// holdExports keeps each export to one address at a time, but for those that are shareable.
func (d *Disks) holdExports(ctx context.Context) {
	d.shares.Lock()
	defer d.shares.Unlock()
	all, err := d.Exports()
	if err != nil {
		return // restoreExports tells of it
	}
	for _, e := range all {
		if e.Shareable {
			continue
		}
		err := d.ISCSI.Daemon.Hold(ctx, overISCSI{Disks: d}.access(e.disk()))
		if err != nil && ctx.Err() == nil && !errors.Is(err, iscsi.ErrUnavailable) {
			d.ISCSI.Logger.Error("keeping an export to one initiator failed", "export", e.Name, "error", err)
		}
	}
}
