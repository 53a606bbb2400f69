package backup

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/nodevirt/nodevirt/shim/domain"
	"github.com/nodevirt/nodevirt/shim/fields"
	"github.com/nodevirt/nodevirt/shim/record"
	"github.com/nodevirt/nodevirt/shim/vm/background"
	"github.com/nodevirt/nodevirt/shim/vm/hotplug/order"
	"github.com/nodevirt/nodevirt/shim/vm/table"
	"github.com/nodevirt/nodevirt/shim/vm/vmerrors"
)

// Why backups fail that QEMU could have made.
var (
	errCancelled = errors.New("the backup was cancelled")
	errEnded     = errors.New("the VM ended before the backup did")
	errLost      = errors.New("QEMU does not have the backup's jobs: the shim restarted before they began")
)

// cancel has a backup fail, and waits for its end for a while. A backup that is unknown is no error.
func (b *Backups) cancel(ctx context.Context, v *table.VM, a order.Name) (order.Backup, error) {
	unlock, err := v.Lock(ctx)
	if err != nil {
		return order.Backup{}, err
	}
	r := v.Record()
	if has(r, a.Name) && r.BackingUp() && !r.Backup.Cancelled {
		one := *r.Backup
		one.Cancelled = true
		err = b.put(v, one)
	}
	unlock()
	if err != nil {
		return order.Backup{}, err
	}
	return wait(ctx, v, a.Name)
}

// follow waits for the end of QEMU's jobs, and completes the backup, or has it fail. It returns
// without either if the shim ends: the next one follows the jobs.
func (b *Backups) follow(ctx context.Context, v *table.VM, one record.Backup) {
	disks := disksOf(one)
	failed := b.poll(ctx, v, func(ctx context.Context) (bool, error) {
		if b.isCancelled(v, one) {
			return true, errCancelled
		}
		jobs, err := b.o.Domains.Jobs(ctx, v.Record().Domain.UUID, disks)
		switch {
		case err != nil:
			return false, err
		case jobs.Found < len(disks):
			return true, errLost
		case jobs.Failed != nil:
			return true, jobs.Failed
		}
		return jobs.Ended == len(disks), nil
	})
	if failed == nil {
		failed = b.close(ctx, v, disks)
	}
	if failed == nil {
		failed = b.complete(ctx, v, one)
	}
	if failed != nil {
		b.fail(ctx, v, one, failed)
	}
}

func (b *Backups) isCancelled(v *table.VM, one record.Backup) bool {
	r := v.Record()
	return has(r, one.Name) && r.Backup.Cancelled
}

// poll calls a function until it is done. A libvirtd that is away, and a guest that is paused, are
// waited for; other errors some times. The end of the VM is an error.
func (b *Backups) poll(ctx context.Context, v *table.VM, do func(context.Context) (done bool, err error)) error {
	for errs := 0; ; {
		limited, cancel := background.AtMost(ctx, patience)
		done, err := do(limited)
		cancel()
		if done {
			return err
		}
		switch {
		case err == nil:
			errs = 0
		case ctx.Err() != nil, errors.Is(err, domain.ErrUnavailable), errors.Is(err, domain.ErrPaused):
		case errs == maxErrors:
			return err
		default:
			errs++
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-v.Exited():
			return errEnded
		case <-time.After(jobPoll):
		}
	}
}

// close has QEMU close the files of a backup whose jobs have ended.
func (b *Backups) close(ctx context.Context, v *table.VM, disks []domain.BackupDisk) error {
	return b.poll(ctx, v, func(ctx context.Context) (bool, error) {
		err := b.o.Domains.Close(ctx, v.Record().Domain.UUID, disks)
		return err == nil, err
	})
}

// complete gives the files their names, and records that the backup is complete.
func (b *Backups) complete(ctx context.Context, v *table.VM, one record.Backup) error {
	one.Renaming = true
	if err := b.update(ctx, v, one); err != nil {
		return err
	}
	if err := b.within(ctx, completeTime, v, func() error { return b.o.Files.Complete(one) }); err != nil {
		return err
	}
	one.State, one.End = record.BackupCompleted, time.Now().UTC()
	if err := b.update(ctx, v, one); err != nil {
		return err
	}
	log := table.Logger(b.o.Logger, v.Record()).With("backup", one.Name)
	log.Info("a backup is complete", "incremental", one.Since != "", "warning", one.Warning)
	if err := b.endJobs(ctx, v, disksOf(one)); err != nil {
		log.Warn("the jobs of a backup stay in QEMU", "error", err)
	}
	return nil
}

// endJobs has QEMU end and forget the jobs of a backup.
func (b *Backups) endJobs(ctx context.Context, v *table.VM, disks []domain.BackupDisk) error {
	return b.poll(ctx, v, func(ctx context.Context) (bool, error) {
		ended, err := b.o.Domains.End(ctx, v.Record().Domain.UUID, disks)
		if errors.Is(err, domain.ErrNotRunning) {
			return true, err
		}
		return ended, err
	})
}

// fail undoes a backup, and records why it failed. It does nothing if the shim ends: QEMU's jobs go
// on, and the next shim follows them.
func (b *Backups) fail(ctx context.Context, v *table.VM, one record.Backup, failed error) {
	log := table.Logger(b.o.Logger, v.Record()).With("backup", one.Name)
	if ctx.Err() != nil {
		return
	}
	if one.Pull {
		one.Ending = true
		if err := (pulls{b}).dismiss(ctx, v, one); err != nil && !errors.Is(err, errEnded) {
			log.Warn("removing the readers of a backup failed", "error", err)
		}
	}
	if !errors.Is(failed, errEnded) {
		err := b.endJobs(ctx, v, disksOf(one))
		if err == nil {
			err = b.close(ctx, v, disksOf(one))
		}
		if err == nil {
			err = b.o.Domains.Keep(ctx, v.Record().Domain.UUID, kept(one)) // the next backup tries again
		}
		if ctx.Err() != nil {
			return
		}
		if err != nil {
			log.Warn("undoing a backup in QEMU failed", "error", err)
		}
	}
	if err := b.remove(ctx, v, one); err != nil {
		log.Warn("the files of a failed backup stay in its volume", "error", err)
	}
	one.State, one.End, one.Message = record.BackupFailed, time.Now().UTC(), clip(failed.Error())
	log.Info("a backup has failed", "error", failed)
	if err := b.update(ctx, v, one); err != nil && !errors.Is(err, vmerrors.ErrNotFound) && !errors.Is(err, errEnded) {
		log.Warn("recording the end of a backup failed", "error", err)
	}
}

// remove removes the files of a backup.
func (b *Backups) remove(ctx context.Context, v *table.VM, one record.Backup) error {
	return b.within(ctx, accessTime, v, func() error { return b.o.Files.Remove(one) })
}

// update records how a backup goes on. A VM that has ended has no backup.
func (b *Backups) update(ctx context.Context, v *table.VM, one record.Backup) error {
	ctx, cancel := background.AtMost(ctx, patience)
	defer cancel()
	unlock, err := v.Lock(ctx)
	if err != nil {
		return err
	}
	defer unlock()
	r := v.Record()
	switch {
	case r.State != record.Running || !has(r, one.Name):
		return errEnded
	case r.Backup.Cancelled && one.State == record.BackupCompleted:
		return errCancelled
	}
	one.Cancelled, one.Finished, one.Readers, one.Socket = r.Backup.Cancelled, r.Backup.Finished, r.Backup.Readers, r.Backup.Socket
	return b.put(v, one)
}

// put records a backup, and reports whether the VM can move. The caller has the VM's turn.
func (b *Backups) put(v *table.VM, one record.Backup) error {
	if err := b.o.Table.Put(v, v.Record().WithBackup(one)); err != nil {
		return fmt.Errorf("record the backup: %w", err)
	}
	b.o.Conditions.Update(v)
	return nil
}

// clip bounds a text in a record.
func clip(text string) string {
	return strings.ToValidUTF8(fields.Clip(text, maxMessage), "?")
}

// Recover follows the backups that an earlier shim process began.
func (b *Backups) Recover() {
	for _, v := range b.o.Table.All("") {
		if r := v.Record(); r.State == record.Running && r.BackingUp() {
			b.o.Tasks.Run(func(ctx context.Context) {
				if r.Freeze != nil && r.Backup.Quiesce != string(order.QuiesceSkipped) {
					b.thaw(ctx, v)
				}
				b.attend(ctx, v, *r.Backup)
			})
		}
	}
}
