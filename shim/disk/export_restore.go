package disk

import (
	"context"
	"slices"
)

// restore serves the export of an id, or all for "", where tgtd no longer does.
func (x *Exports) restore(ctx context.Context, id string) {
	x.mu.Lock()
	defer x.mu.Unlock()
	all, err := x.List()
	if err != nil {
		x.log.Error("reading the exports failed", "error", err)
	}
	for _, e := range all {
		if id != "" && id != e.ID {
			continue
		}
		ctx, cancel := context.WithTimeout(ctx, undoTime)
		err := x.served.serve(ctx, e.disk())
		cancel()
		if err != nil && ctx.Err() == nil {
			x.log.Error("serving an export again failed", "export", e.Name, "error", err)
		}
	}
}

// releaseStrays releases the disks of exports that were never recorded, and
// removes their folders.
func (x *Exports) releaseStrays(ctx context.Context) error {
	x.mu.Lock()
	defer x.mu.Unlock()
	owners, err := x.images.Owners(ctx)
	if err != nil {
		return err
	}
	stray, err := x.strays(owners)
	if err != nil {
		return err
	}
	for _, id := range stray {
		if err := x.images.Release(ctx, id); err != nil {
			return err
		}
		if err := x.files.remove(id); err != nil {
			return err
		}
	}
	return nil
}

// strays returns the ids of exports that have a disk or a folder and no record.
// The caller holds mu.
func (x *Exports) strays(owners []string) ([]string, error) {
	folders, err := x.files.ids()
	if err != nil {
		return nil, err
	}
	all, err := x.List()
	if err != nil {
		return nil, err
	}
	all = append(all, x.making...)
	return slices.DeleteFunc(append(owners, folders...), func(id string) bool {
		return !IsExport(id) || slices.ContainsFunc(all, func(e Export) bool { return e.ID == id })
	}), nil
}
