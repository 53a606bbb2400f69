package vm

import (
	"context"
	"time"

	"github.com/nodevirt/nodevirt/shim/vmspec"
)

// giveBackAgain is how long a containerd that does not answer is left alone.
const giveBackAgain = time.Second

// giveBack gives back the registry disks of a container that did not come to be,
// whatever became of ctx. No record knows them: if containerd is away, the
// attempts go on until it is back.
func (m *Manager) giveBack(ctx context.Context, id string, disks []vmspec.Disk) {
	release := func(ctx context.Context) error {
		ctx, cancel := context.WithTimeout(ctx, undoTime)
		defer cancel()
		return m.Disks.Release(ctx, id, disks)
	}
	err := release(context.WithoutCancel(ctx))
	if err == nil {
		return
	}
	m.Logger.Warn("giving back a disk failed, trying on", "container", id, "error", err)
	m.tasks.run(func(ctx context.Context) {
		for err != nil {
			select {
			case <-ctx.Done():
				return // the next shim finds it
			case <-time.After(giveBackAgain):
				err = release(ctx)
			}
		}
		m.Logger.Info("a disk was given back", "container", id)
	})
}
