package disk

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/nodevirt/nodevirt/imageunpack/iscsi"
)

// Remove removes an export. It removes an export in use only with force: then reads
// and writes of the initiator fail.
func (x *Exports) Remove(ctx context.Context, name string, force bool) error {
	x.mu.Lock()
	defer x.mu.Unlock()
	all, err := x.List()
	if err != nil {
		return err
	}
	i := slices.IndexFunc(all, func(e Export) bool { return e.Name == name })
	if i < 0 {
		return fmt.Errorf("%w export %q", ErrUnknown, name)
	}
	ctx, cancel := context.WithTimeout(ctx, undoTime) // a call that hangs must not block tgtd for others
	defer cancel()
	users, _, err := x.Users(ctx, all[i])
	if err != nil && !errors.Is(err, iscsi.ErrUnavailable) {
		return err
	}
	if len(users) > 0 && !force {
		return fmt.Errorf("export %s is %w by an initiator: end the VM first, or remove the export with --force", name, iscsi.ErrBusy)
	}
	if len(users) > 0 {
		if err := x.breakOff(ctx, all[i]); err != nil {
			return fmt.Errorf("remove export %s: %w", name, err)
		}
		return nil
	}
	if err := x.remove(ctx, all[i]); err != nil {
		return fmt.Errorf("remove export %s: %w", name, err)
	}
	return nil
}

// breakOff removes an export in use. The target stays, without its disk, until tgtd or
// the shim restarts: without a target QEMU would wait, and report nothing to its guest.
func (x *Exports) breakOff(ctx context.Context, e Export) error {
	if err := x.served.breakOff(ctx, e.disk()); err != nil {
		return err
	}
	if err := x.images.Release(ctx, e.ID); err != nil {
		return err
	}
	return x.files.remove(e.ID)
}

// remove removes everything of an export, the folder with its record last.
func (x *Exports) remove(ctx context.Context, e Export) error {
	if err := x.served.unserve(ctx, e.disk()); err != nil {
		return err
	}
	if err := x.images.Release(ctx, e.ID); err != nil {
		return err
	}
	return x.files.remove(e.ID)
}
