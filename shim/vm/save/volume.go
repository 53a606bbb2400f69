package save

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/nodevirt/nodevirt/shim/checkpoint"
	"github.com/nodevirt/nodevirt/shim/record"
	"github.com/nodevirt/nodevirt/shim/vm/background"
	"github.com/nodevirt/nodevirt/shim/vm/table"
	"github.com/nodevirt/nodevirt/shim/vm/vmerrors"
	"github.com/nodevirt/nodevirt/shim/vmspec"
)

// stuck is how long the guest waits, when its save has been given up, for a write to a volume that
// does not answer.
const stuck = time.Second

const (
	// createTime bounds the creation of an archive, and completeTime the time until its content is on the
	// volume, while the guest goes on.
	createTime   = time.Minute
	completeTime = 10 * time.Minute
	// removeTime bounds the removal of an unfinished archive.
	removeTime = 10 * time.Second
)

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
	volume := s.volumes.Of(v)
	var f *os.File
	defer func() {
		volume.Later(func() {
			if f != nil {
				_ = f.Close()
			}
		})
		if !errors.Is(err, background.ErrVolume) { // then the file is closed when this returns, and the next save may begin
			_ = within(context.WithoutCancel(ctx), stuck, volume, func() error { return nil })
		}
	}()
	err = within(ctx, createTime, volume, func() (err error) {
		f, err = s.o.Files.Create(folder, as.Partial)
		return err
	})
	if err != nil {
		return err
	}
	w := checkpoint.NewWriter(f)
	err = s.paused(ctx, r, pauseTime, func(ctx context.Context) error {
		err := s.bounded(ctx, v, func() error { return s.content(ctx, r, w, &m) })
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
	return within(ctx, completeTime, volume, func() error { return s.complete(as, w, m) })
}

// complete gives an archive its end and its name.
func (s *Saves) complete(as record.Saving, w *checkpoint.Writer, m checkpoint.Manifest) error {
	if err := w.Close(m); err != nil {
		return err
	}
	return s.o.Files.Rename(as.Folder, as.Partial, vmspec.CheckpointFile)
}

// within accesses a volume for a limited time.
func within(ctx context.Context, limit time.Duration, volume *background.Volume, do func() error) error {
	ctx, cancel := background.AtMost(ctx, limit)
	defer cancel()
	return volume.Do(ctx, do)
}

// bounded calls do, which accesses the volume of a VM's save, and returns soon after ctx has ended even
// if do does not: a volume may keep a writer for ever.
func (s *Saves) bounded(ctx context.Context, v *table.VM, do func() error) error {
	late, cancel := context.WithCancelCause(context.WithoutCancel(ctx))
	defer cancel(nil)
	defer context.AfterFunc(ctx, func() {
		background.Sleep(late, stuck)
		cancel(context.Cause(ctx))
	})()
	err := s.volumes.Of(v).Do(late, do)
	if cause := context.Cause(ctx); cause != nil && !errors.Is(err, background.ErrVolume) {
		return errors.Join(cause, err)
	}
	return err
}
