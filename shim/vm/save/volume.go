package save

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/nodevirt/nodevirt/shim/checkpoint"
	"github.com/nodevirt/nodevirt/shim/record"
	"github.com/nodevirt/nodevirt/shim/vm/table"
	"github.com/nodevirt/nodevirt/shim/vm/vmerrors"
	"github.com/nodevirt/nodevirt/shim/vmspec"
)

// stuck is how long the guest waits, when its save has been given up, for a write to a volume that
// does not answer.
const stuck = time.Second

// toVolume writes a checkpoint of a running VM to a volume, as the job's order says.
func (s *Saves) toVolume(v *table.VM, j *job, folder string) {
	ctx, cancel := context.WithCancelCause(j.ctx)
	defer cancel(nil)
	s.o.Tasks.Run(func(context.Context) {
		select {
		case <-v.Exited():
			cancel(errors.New("the guest ended"))
		case <-ctx.Done():
		}
	})
	err := s.writeVolume(ctx, v, j, folder)
	log := table.Logger(s.o.Logger, v.Record()).With("volume", j.order.Volume)
	if err != nil {
		log.Warn("saving a VM to a volume failed", "error", err)
	} else {
		log.Info("VM saved to a volume")
	}
	j.done(err)
}

func (s *Saves) writeVolume(ctx context.Context, v *table.VM, j *job, folder string) (err error) {
	m, err := s.describe(ctx, v)
	if err != nil {
		return err
	}
	m.Volumes = j.order.Disks
	as := record.Saving{Folder: folder, Partial: vmspec.CheckpointFile + partial, Suspend: j.order.Suspend}
	r, err := s.begin(ctx, v, as, j.order.Disks)
	if err != nil {
		return err
	}
	defer func() {
		if ended := s.end(ctx, v); !suspended(v.Record()) { // else it goes on in the background
			err = errors.Join(err, ended)
		}
	}()
	if s.o.Moves.Moving(v) {
		return fmt.Errorf("%w: the guest is moving to another node", vmerrors.ErrState)
	}
	f, err := s.o.Files.Create(folder, as.Partial)
	if err != nil {
		return err
	}
	defer f.Close()
	w := checkpoint.NewWriter(f)
	err = s.paused(ctx, r, pauseTime, func(ctx context.Context) error {
		err := bounded(ctx, func() error { return s.content(ctx, r, w, &m) })
		if err != nil {
			return err
		}
		if as.Suspend {
			return s.suspend(ctx, v, func() error { return s.complete(as, w, m) })
		}
		return j.hold(ctx)
	})
	if err != nil || as.Suspend {
		return err
	}
	return s.complete(as, w, m)
}

// complete gives an archive its end and its name.
func (s *Saves) complete(as record.Saving, w *checkpoint.Writer, m checkpoint.Manifest) error {
	if err := w.Close(m); err != nil {
		return err
	}
	return s.o.Files.Rename(as.Folder, as.Partial, vmspec.CheckpointFile)
}

// bounded calls do, and returns soon after ctx has ended even if do does not: a volume may keep a
// writer for ever.
func bounded(ctx context.Context, do func() error) error {
	done := make(chan error, 1)
	go func() { done <- do() }()
	select {
	case err := <-done:
		return err
	case <-ctx.Done():
	}
	select {
	case err := <-done:
		return errors.Join(context.Cause(ctx), err)
	case <-time.After(stuck):
		return context.Cause(ctx)
	}
}
