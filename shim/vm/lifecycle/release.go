package lifecycle

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/nodevirt/nodevirt/shim/vm/background"
	"github.com/nodevirt/nodevirt/shim/vmspec"
)

// undoTime bounds the undoing of a failed call.
const undoTime = 20 * time.Second

// unwind runs the undos backwards, also if ctx has ended.
func unwind(ctx context.Context, undo []func(context.Context) error) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), undoTime)
	defer cancel()
	var errs []error
	for _, do := range slices.Backward(undo) {
		errs = append(errs, do(ctx))
	}
	return errors.Join(errs...)
}

// releasePause is the time between two requests to a containerd that does not answer.
var releasePause = background.Fixed(time.Second)

// release releases the registry disks of a container whose creation failed, also
// if ctx has ended. No record knows the disks: while containerd is away, the
// attempts go on until it is back.
func (c *creator) release(ctx context.Context, id string, disks []vmspec.Disk) {
	try := func(ctx context.Context) error {
		ctx, cancel := context.WithTimeout(ctx, undoTime)
		defer cancel()
		return c.disks.Release(ctx, id, disks)
	}
	err := try(context.WithoutCancel(ctx))
	if err == nil {
		return
	}
	c.log.Warn("releasing a disk failed, retrying", "container", id, "error", err)
	c.tasks.Retry(releasePause, nil, func(ctx context.Context) bool {
		if try(ctx) != nil {
			return false
		}
		c.log.Info("a disk was released", "container", id)
		return true
	})
}
