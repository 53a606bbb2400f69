package disk

import (
	"context"
	"path/filepath"
	"slices"
)

// restoreExports serves the export of an id, or all for "", where tgtd no longer does.
func (d *Disks) restoreExports(ctx context.Context, id string) {
	d.shares.Lock()
	defer d.shares.Unlock()
	all, err := d.Exports()
	if err != nil {
		d.Views.Logger.Error("reading the exports failed", "error", err)
	}
	for _, e := range all {
		if id != "" && id != e.ID {
			continue
		}
		ctx, cancel := context.WithTimeout(ctx, undoTime)
		err := overISCSI{Disks: d}.serve(ctx, e.disk())
		cancel()
		if err != nil && ctx.Err() == nil {
			d.Views.Logger.Error("serving an export again failed", "export", e.Name, "error", err)
		}
	}
}

// releaseStrayExports releases the disks of exports that were never recorded, and
// removes their folders.
func (d *Disks) releaseStrayExports(ctx context.Context) error {
	d.shares.Lock()
	defer d.shares.Unlock()
	owners, err := d.Unpacker.Owners(ctx)
	if err != nil {
		return err
	}
	stray, err := d.strayExports(owners)
	if err != nil {
		return err
	}
	for _, id := range stray {
		if err := d.Unpacker.Release(ctx, id); err != nil {
			return err
		}
		if err := d.removeFolder(id); err != nil {
			return err
		}
	}
	return nil
}

// strayExports returns the ids of exports that have a disk or a folder and no record.
// The caller holds shares.
func (d *Disks) strayExports(owners []string) ([]string, error) {
	folders, err := filepath.Glob(filepath.Join(d.Shares, "exports", exportPrefix+"*"))
	if err != nil {
		return nil, err
	}
	all, err := d.Exports()
	if err != nil {
		return nil, err
	}
	all = append(all, d.making...)
	for _, f := range folders {
		owners = append(owners, filepath.Base(f))
	}
	return slices.DeleteFunc(owners, func(id string) bool {
		return !IsExport(id) || slices.ContainsFunc(all, func(e Export) bool { return e.ID == id })
	}), nil
}
