package backup

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/nodevirt/nodevirt/shim/domain"
	"github.com/nodevirt/nodevirt/shim/record"
	"github.com/nodevirt/nodevirt/shim/vm/attachment"
	"github.com/nodevirt/nodevirt/shim/vm/background"
	"github.com/nodevirt/nodevirt/shim/vm/hotplug/order"
	"github.com/nodevirt/nodevirt/shim/vm/table"
	"github.com/nodevirt/nodevirt/shim/vm/vmerrors"
	"github.com/nodevirt/nodevirt/shim/vmspec"
)

const (
	// stallTime is how long an error of a disk may stop the guest before a pull backup fails: its
	// files may be the reason.
	stallTime = 10 * time.Second
	// reservePart of the volume, and at most maxReserve bytes, are left free. A guest that overwrites
	// more within jobPoll is stopped until the backup has failed.
	reservePart = 16
	maxReserve  = 64 << 20
)

// Why pull backups fail.
var (
	errStalled = errors.New("an error of a disk, or of the backup's volume, stopped the guest")
	errFull    = errors.New("the backup's volume is nearly full of what the guest has overwritten; use a larger PVC")
	errStopped = errors.New("QEMU ended the backup's jobs")
)

// isReady reports whether a pull backup can have readers.
func isReady(one record.Backup) bool {
	return one.State == record.BackupWriting && one.Pull && one.Begun && !one.Finished && !one.Cancelled && !one.Ending
}

// pulls are the pull backups of a node's running VMs.
type pulls struct{ *Backups }

// finish has a pull backup become complete, and waits for that for a while.
func (p pulls) finish(ctx context.Context, v *table.VM, a order.Name) (order.Backup, error) {
	unlock, err := v.Lock(ctx)
	if err != nil {
		return order.Backup{}, err
	}
	r := v.Record()
	if has(r, a.Name) && isReady(*r.Backup) {
		one := *r.Backup
		one.Finished = true
		err = p.put(v, one)
	}
	unlock()
	if err != nil {
		return order.Backup{}, err
	}
	return wait(ctx, v, a.Name)
}

// serve has QEMU serve a pull backup's disks to a container. A repeated order changes nothing.
func (p pulls) serve(ctx context.Context, v *table.VM, a order.BackupReaders) (order.Backup, error) {
	r := v.Record()
	if has(r, a.Name) && isReady(*r.Backup) && r.Backup.Readers == a.Container {
		return about(r, a.Name), nil
	}
	config, err := attachment.Find(ctx, p.o.Pods, r, a.Container)
	if err != nil {
		return order.Backup{}, err
	}
	folder, err := vmspec.EmptyDir(order.SocketVolume, config)
	if err != nil {
		return order.Backup{}, fmt.Errorf("%w: %w", vmerrors.ErrInvalid, err)
	}
	unlock, err := v.Lock(ctx) // until QEMU serves: the backup does not end meanwhile
	if err != nil {
		return order.Backup{}, err
	}
	defer unlock()
	r = v.Record()
	if !has(r, a.Name) || !isReady(*r.Backup) {
		return order.Backup{}, fmt.Errorf("%w: backup %.80q has no readers: it has not begun, or has ended", vmerrors.ErrState, a.Name)
	}
	one, former := *r.Backup, r.Backup.Socket
	one.Readers, one.Socket = "", folder // the former readers lose QEMU, even if the new ones do not get it
	if err := p.put(v, one); err != nil {
		return order.Backup{}, err
	}
	if err := p.listen(ctx, r, one, folder); err != nil {
		return order.Backup{}, err
	}
	one.Readers = a.Container
	if err := p.put(v, one); err != nil {
		return order.Backup{}, err
	}
	if former != "" && former != folder {
		if err := p.o.Files.Unlisten(former, order.SocketFile); err != nil {
			table.Logger(p.o.Logger, r).Debug("the socket of a backup's former readers stays", "error", err)
		}
	}
	return about(v.Record(), a.Name), nil
}

// listen has QEMU serve on a new socket in a folder.
func (p pulls) listen(ctx context.Context, r record.Container, one record.Backup, folder string) error {
	listener, err := p.o.Files.Listen(folder, order.SocketFile)
	if err != nil {
		return err
	}
	defer listener.Close()
	var disks []domain.ServedDisk
	for _, d := range one.Disks {
		disks = append(disks, domain.ServedDisk{Target: d.Target, Name: d.Name, Changes: one.Since != ""})
	}
	ctx, cancel := background.AtMost(ctx, patience)
	defer cancel()
	if err := p.o.Domains.Serve(ctx, r.Domain.UUID, disks, listener); err != nil {
		return errors.Join(err, p.o.Files.Unlisten(folder, order.SocketFile))
	}
	return nil
}

// followPull waits until the readers of a pull backup are done, and completes it, or has it fail. It
// returns without either if the shim ends.
func (p pulls) followPull(ctx context.Context, v *table.VM, one record.Backup) {
	var failed error
	if !one.Pulled {
		w := watch{b: p.Backups, v: v, one: one, disks: disksOf(one)}
		failed = p.poll(ctx, v, w.look)
		one = w.one
	}
	if failed == nil {
		failed = p.completePull(ctx, v, one)
	}
	if failed != nil {
		p.fail(ctx, v, one, failed)
	}
}

// watch looks after a pull backup.
type watch struct {
	b     *Backups
	v     *table.VM
	one   record.Backup
	disks []domain.BackupDisk
	// stalled is when the guest was first found stopped; zero if it runs.
	stalled time.Time
}

// look reports whether the readers are done, or why the backup fails.
func (w *watch) look(ctx context.Context) (done bool, err error) {
	r := w.v.Record()
	if !has(r, w.one.Name) {
		return true, errEnded
	}
	if r.Backup.Cancelled {
		return true, errCancelled
	}
	w.one.Readers, w.one.Socket = r.Backup.Readers, r.Backup.Socket
	jobs, err := w.b.o.Domains.Jobs(ctx, r.Domain.UUID, w.disks)
	switch {
	case err != nil:
		return false, err
	case jobs.Found < len(w.disks):
		return true, errLost
	case jobs.Failed != nil:
		return true, jobs.Failed
	case jobs.Ended > 0:
		return true, errStopped
	}
	if err := w.hinders(ctx, jobs.Stalled); err != nil {
		return true, err
	}
	if !w.one.Begun {
		w.one.Begun = true
		return false, w.b.update(ctx, w.v, w.one)
	}
	return r.Backup.Finished, nil
}

// hinders returns why the backup keeps the guest from writing, or soon will.
func (w *watch) hinders(ctx context.Context, stalled bool) error {
	switch {
	case !stalled:
		w.stalled = time.Time{}
	case w.stalled.IsZero():
		w.stalled = time.Now()
	case time.Since(w.stalled) > stallTime:
		return errStalled
	}
	var free, size int64
	err := w.b.within(ctx, accessTime, w.v, func() (err error) {
		free, size, err = w.b.o.Files.Room(w.one)
		return err
	})
	if err != nil {
		return err
	}
	if free < min(size/reservePart, maxReserve) {
		return errFull
	}
	return nil
}

// completePull records that a pull backup is complete. What the readers got is good: all of QEMU's
// jobs went on until then.
func (p pulls) completePull(ctx context.Context, v *table.VM, one record.Backup) error {
	one.Pulled, one.Ending = true, true
	if err := p.dismiss(ctx, v, one); err != nil {
		return err
	}
	if err := p.endJobs(ctx, v, disksOf(one)); err != nil {
		return err
	}
	if err := p.close(ctx, v, disksOf(one)); err != nil {
		return err
	}
	log := table.Logger(p.o.Logger, v.Record()).With("backup", one.Name)
	if err := p.remove(ctx, v, one); err != nil {
		log.Warn("the files of a backup stay in its volume", "error", err)
	}
	one.State, one.End = record.BackupCompleted, time.Now().UTC()
	if err := p.update(ctx, v, one); err != nil {
		return err
	}
	log.Info("a backup is complete", "incremental", one.Since != "", "warning", one.Warning)
	return nil
}

// dismiss records that a backup gets no more readers, and removes the socket of those that it has. QEMU
// ends their connections with the jobs. A socket that has just come stays if the VM ends: nothing
// listens there, and its pod goes with the backup's export.
func (p pulls) dismiss(ctx context.Context, v *table.VM, one record.Backup) error {
	err := p.update(ctx, v, one)
	r := v.Record()
	if has(r, one.Name) { // a VM that has ended has no backup
		one.Socket = r.Backup.Socket
	}
	if one.Socket != "" {
		if err := p.o.Files.Unlisten(one.Socket, order.SocketFile); err != nil {
			table.Logger(p.o.Logger, r).Debug("the socket of a backup's readers stays", "error", err)
		}
	}
	return err
}
