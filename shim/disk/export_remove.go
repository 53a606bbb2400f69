package disk

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"

	"github.com/nodevirt/nodevirt/imageunpack/iscsi"
)

// Unexport removes an export. It removes an export in use only with force: then reads
// and writes of the initiator fail.
func (d *Disks) Unexport(ctx context.Context, name string, force bool) error {
	d.shares.Lock()
	defer d.shares.Unlock()
	all, err := d.Exports()
	if err != nil {
		return err
	}
	i := slices.IndexFunc(all, func(e Export) bool { return e.Name == name })
	if i < 0 {
		return fmt.Errorf("%w export %q", ErrUnknown, name)
	}
	ctx, cancel := context.WithTimeout(ctx, undoTime) // a call that hangs must not block tgtd for others
	defer cancel()
	users, _, err := d.Users(ctx, all[i])
	if err != nil && !errors.Is(err, iscsi.ErrUnavailable) {
		return err
	}
	if len(users) > 0 && !force {
		return fmt.Errorf("export %s is %w by an initiator: end the VM first, or take it back by force", name, iscsi.ErrBusy)
	}
	if len(users) > 0 {
		if err := d.breakOff(ctx, all[i]); err != nil {
			return fmt.Errorf("take back export %s: %w", name, err)
		}
		return nil
	}
	if err := d.removeExport(ctx, all[i]); err != nil {
		return fmt.Errorf("take back export %s: %w", name, err)
	}
	return nil
}

// breakOff removes an export in use. The target stays, without its disk, until tgtd or
// the shim restarts: without a target QEMU would wait, and report nothing to its guest.
func (d *Disks) breakOff(ctx context.Context, e Export) error {
	if err := d.ISCSI.Daemon.Break(ctx, d.Target(e)); err != nil {
		return err
	}
	if err := d.views.Hide(ctx, viewOf(e.disk())); err != nil {
		return err
	}
	if err := d.Unpacker.Release(ctx, e.ID); err != nil {
		return err
	}
	return d.removeFolder(e.ID)
}

// removeFolder removes an export's folder, its record first, so that a crash leaves no
// export.
func (d *Disks) removeFolder(id string) error {
	dir := filepath.Join(d.Shares, "exports", id)
	if err := os.Remove(filepath.Join(dir, exportFile)); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return os.RemoveAll(dir)
}

// removeExport removes everything of an export, the folder with its record last.
func (d *Disks) removeExport(ctx context.Context, e Export) error {
	o := overISCSI{Disks: d}
	if err := o.unserve(ctx, e.disk()); err != nil {
		return err
	}
	if err := d.Unpacker.Release(ctx, e.ID); err != nil {
		return err
	}
	return d.removeFolder(e.ID)
}
