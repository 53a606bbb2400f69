package disk

import (
	"context"
	"errors"
	"time"

	"github.com/nodevirt/nodevirt/imageunpack/iscsi"
)

// holdEvery is how long two nodes could use one export at the same time.
const holdEvery = 2 * time.Second

// hold limits each export to one initiator's address at a time, except shareable
// exports. It takes no lock: an export that is removed meanwhile has no target.
func (x *Exports) hold(ctx context.Context) {
	all, _ := x.List() // restore logs the error
	for _, e := range all {
		if e.Shareable {
			continue
		}
		err := x.targets.Hold(ctx, x.served.access(e.disk()))
		if err != nil && ctx.Err() == nil && !errors.Is(err, iscsi.ErrUnavailable) {
			x.log.Error("limiting an export to one initiator failed", "export", e.Name, "error", err)
		}
	}
}
