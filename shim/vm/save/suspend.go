package save

import (
	"context"
	"fmt"

	"github.com/nodevirt/nodevirt/shim/record"
	"github.com/nodevirt/nodevirt/shim/vm/table"
	"github.com/nodevirt/nodevirt/shim/vm/vmerrors"
	"github.com/nodevirt/nodevirt/shim/vmspec"
)

// A guest that is suspended ends with its archive:
//
//	pause ──▶ memory, disks ──▶ archive complete ──▶ record: complete ──▶ the guest ends
//	  └──────────────┴──────────────────┴──▶ resume, archive removed
//
// The record decides. Before it says that the save is complete, every failure lets the guest go on.
// From then on, no failure does: its disks are those of its memory.

// suspend completes the archive of a paused guest, and records that the guest never runs here again.
func (s *Saves) suspend(ctx context.Context, v *table.VM, complete func() error) error {
	if err := s.change(ctx, v, func(as *record.Saving) { as.Renaming = true }); err != nil {
		return err
	}
	if err := s.bounded(ctx, v, complete); err != nil {
		return err
	}
	return s.change(ctx, v, func(as *record.Saving) { as.Complete = true })
}

// change changes the record of a save, unless ctx has ended or the guest has.
func (s *Saves) change(ctx context.Context, v *table.VM, do func(as *record.Saving)) error {
	unlock, err := v.Lock(ctx)
	if err != nil {
		return err
	}
	defer unlock()
	if err := context.Cause(ctx); err != nil {
		return err
	}
	r := v.Record()
	if r.State != record.Running || r.Saving == nil {
		return fmt.Errorf("%w: the guest has ended", vmerrors.ErrState)
	}
	as := *r.Saving
	do(&as)
	r.Saving = &as
	return s.o.Table.Put(v, r)
}

// suspended reports whether a guest never runs here again.
func suspended(r record.Container) bool { return r.Saving != nil && r.Saving.Complete }

// finish ends a guest whose memory is saved. Package lifecycle records its end.
func (s *Saves) finish(ctx context.Context, r record.Container) error {
	if r.State != record.Running {
		return nil
	}
	if err := s.o.Domains.Destroy(ctx, r.Domain.UUID); err != nil {
		return fmt.Errorf("end the guest, whose memory is saved: %w", err)
	}
	return nil
}

// onVolumes returns the disks of a VM whose content outlives it.
func onVolumes(r record.Container) []string {
	var all []string
	for _, d := range r.Spec.Disks {
		if m, _ := d.Transfer(); m == vmspec.TransferShared && d.Source != vmspec.SourceHostDisk {
			all = append(all, d.Name)
		}
	}
	return all
}
