package save

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"

	"github.com/nodevirt/nodevirt/shim/record"
	"github.com/nodevirt/nodevirt/shim/vm/background"
	"github.com/nodevirt/nodevirt/shim/vm/table"
	"github.com/nodevirt/nodevirt/shim/vm/vmerrors"
	"github.com/nodevirt/nodevirt/shim/vmspec"
)

// end undoes what begin recorded: the guest goes on, and no part of an archive stays. If libvirtd
// does not answer, end goes on in the background.
func (s *Saves) end(ctx context.Context, v *table.VM) error {
	err := s.undo(context.WithoutCancel(ctx), v)
	if err != nil {
		s.retry(v)
	}
	return err
}

// undo lets the guest go on before it removes the archive, which a volume that does not answer delays.
func (s *Saves) undo(ctx context.Context, v *table.VM) error {
	ctx, cancel := background.AtMost(ctx, 2*patience)
	defer cancel()
	log := table.Logger(s.o.Logger, v.Record())
	as, err := s.letGo(ctx, v)
	gone := errors.Is(err, vmerrors.ErrNotFound)
	if gone {
		as, err = v.Record().Saving, nil
	}
	if err != nil || as == nil || as.Complete {
		return err
	}
	if err := s.discard(ctx, v, *as); err != nil {
		// An archive that can't have its name yet is of no use, and the next one takes its place.
		if !gone && (as.Renaming || !errors.Is(err, background.ErrVolume)) {
			return err
		}
		log.Warn("an unfinished archive stays", "folder", as.Folder, "file", as.Partial, "error", err)
	}
	if gone {
		return nil
	}
	return s.forget(ctx, v, *as)
}

// letGo lets the guest of a save go on, or ends the guest whose memory is saved. It returns what the
// record says of the save, or nil.
func (s *Saves) letGo(ctx context.Context, v *table.VM) (*record.Saving, error) {
	unlock, err := v.Lock(ctx)
	if err != nil {
		return nil, err
	}
	defer unlock()
	r := v.Record()
	switch {
	case r.Saving == nil || r.State != record.Running:
	case r.Saving.Complete:
		return r.Saving, s.finish(ctx, r)
	default:
		if err := s.resume(ctx, r); err != nil {
			return nil, fmt.Errorf("resume the guest: %w", err)
		}
	}
	return r.Saving, nil
}

// discard removes an unfinished archive. The caller does not have the VM's turn: the volume may not
// answer. An access that hangs may still have the archive open.
func (s *Saves) discard(ctx context.Context, v *table.VM, as record.Saving) error {
	return within(ctx, removeTime, s.removals.Of(v), func() error {
		if as.Folder != "" {
			err := s.o.Files.Remove(as.Folder, as.Partial)
			if as.Suspend {
				err = errors.Join(err, s.o.Files.Remove(as.Folder, vmspec.CheckpointFile))
			}
			return err
		}
		if err := os.Remove(as.Partial); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
		return nil
	})
}

// forget removes a save from the record.
func (s *Saves) forget(ctx context.Context, v *table.VM, as record.Saving) error {
	unlock, err := v.Lock(ctx)
	if errors.Is(err, vmerrors.ErrNotFound) {
		return nil
	}
	if err != nil {
		return err
	}
	defer unlock()
	r := v.Record()
	if r.Saving == nil || *r.Saving != as {
		return nil
	}
	r.Saving = nil
	return s.o.Table.Put(v, r)
}

// retry goes on with undo in the background.
func (s *Saves) retry(v *table.VM) {
	s.o.Tasks.Retry(retryPause, nil, func(ctx context.Context) bool {
		err := s.undo(ctx, v)
		if err != nil {
			table.Logger(s.o.Logger, v.Record()).Warn("the end of saving a VM failed, retrying", "error", err)
		}
		return err == nil
	})
}

// Recover ends what an earlier shim process has begun. Call it once the table has the VMs. It does
// not wait.
func (s *Saves) Recover() {
	for _, v := range s.o.Table.All("") {
		if v.Record().Saving != nil {
			s.retry(v)
		}
	}
}
