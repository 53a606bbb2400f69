package backup

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
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

// backUp begins a backup, and waits for its end for a while. An order for a backup that the record
// has does not begin another one.
func (b *Backups) backUp(ctx context.Context, v *table.VM, a order.BackupFiles) (order.Backup, error) {
	if err := check(a); err != nil {
		return order.Backup{}, err
	}
	if !has(v.Record(), a.Name) {
		config, err := attachment.Find(ctx, b.o.Pods, v.Record(), a.Container)
		if err != nil {
			return order.Backup{}, err
		}
		folder, err := vmspec.Folder(a.Volume, config)
		if err != nil {
			return order.Backup{}, fmt.Errorf("%w: %w", vmerrors.ErrInvalid, err)
		}
		if err := b.begin(ctx, v, a, folder); err != nil {
			return order.Backup{}, err
		}
	}
	return wait(ctx, v, a.Name)
}

// has reports whether a record has a backup.
func has(r record.Container, name string) bool { return r.Backup != nil && r.Backup.Name == name }

// begin records a backup, which goes on beside the order. What fails is the result of the backup, in
// the record.
func (b *Backups) begin(ctx context.Context, v *table.VM, a order.BackupFiles, folder string) error {
	unlock, err := v.Lock(ctx)
	if err != nil {
		return err
	}
	defer unlock()
	r := v.Record()
	switch {
	case r.State != record.Running || r.Incoming != "":
		return fmt.Errorf("%w: no guest runs in container %q", vmerrors.ErrState, r.ID)
	case has(r, a.Name):
		return nil
	case r.BackingUp():
		return fmt.Errorf("%w: backup %s has not ended", vmerrors.ErrState, r.Backup.Name)
	case r.Dumping():
		return fmt.Errorf("%w: the guest's memory is being dumped", vmerrors.ErrState)
	case r.Saving != nil:
		return fmt.Errorf("%w: the guest is being saved", vmerrors.ErrState)
	case r.Freeze != nil && a.Quiesce:
		return fmt.Errorf("%w: the guest's file systems are frozen already", vmerrors.ErrState)
	case b.o.Moves.Moving(v):
		return fmt.Errorf("%w: the guest is moving to another node", vmerrors.ErrState)
	case b.volumes.Of(v).Busy():
		return fmt.Errorf("%w: an access of an earlier backup has not ended: %w", vmerrors.ErrState, background.ErrVolume)
	}
	one := record.Backup{
		State: record.BackupWriting, Name: a.Name, Volume: a.Volume, Folder: folder, Dir: a.Folder,
		Checkpoint: a.Checkpoint, Since: a.Since, Keep: a.Keep, Quiesce: string(order.QuiesceSkipped), Start: time.Now().UTC(),
		Pull: a.Pull,
	}
	if a.Quiesce { // until it is known
		one.Quiesce = string(order.QuiesceFailed)
	}
	for _, d := range a.Disks {
		target, err := targetOf(r, d.Disk)
		if err != nil {
			return err
		}
		one.Disks = append(one.Disks, record.BackupDisk{Name: d.Disk, Target: target, File: d.File})
	}
	if err := b.put(v, one); err != nil {
		return err
	}
	b.o.Tasks.Run(func(ctx context.Context) { b.run(ctx, v, one) })
	return nil
}

// targetOf returns libvirt's name of a disk that a backup can have: one on a volume that outlives
// the pod, and whose writes all go through QEMU.
func targetOf(r record.Container, name string) (string, error) {
	d, found := diskOf(r, name)
	switch {
	case !found:
		return "", fmt.Errorf("%w: the VM has no disk %q", vmerrors.ErrInvalid, name)
	case d.CDROM, d.LUN, !slices.Contains([]vmspec.Source{vmspec.SourcePVC, vmspec.SourceHostDisk, vmspec.SourceISCSI, vmspec.SourceRBD}, d.Source):
		return "", fmt.Errorf("%w: disk %q is not a disk of a PVC or a hostDisk: backups have neither CD-ROMs, LUNs nor disks that end with the pod",
			vmerrors.ErrInvalid, name)
	}
	return d.Target, nil
}

// diskOf returns a disk that the VM started with, or has got since.
func diskOf(r record.Container, name string) (vmspec.Disk, bool) {
	if i := r.FindPlugged(name); i >= 0 {
		return r.Plugged[i].Disk, r.Plugged[i].State == record.Attached
	}
	i := slices.IndexFunc(r.Spec.Disks, func(d vmspec.Disk) bool { return d.Name == name })
	if i < 0 {
		return vmspec.Disk{}, false
	}
	return r.Spec.Disks[i], true
}

// run makes a backup that the record has, and records how it ended.
func (b *Backups) run(ctx context.Context, v *table.VM, one record.Backup) {
	one, err := b.start(ctx, v, one)
	if err != nil {
		b.fail(ctx, v, one, err)
		return
	}
	b.attend(ctx, v, one)
}

// attend follows a backup that QEMU has begun.
func (b *Backups) attend(ctx context.Context, v *table.VM, one record.Backup) {
	if one.Pull {
		pulls{b}.followPull(ctx, v, one)
	} else {
		b.follow(ctx, v, one)
	}
}

// start prepares a backup, and has QEMU begin.
func (b *Backups) start(ctx context.Context, v *table.VM, one record.Backup) (record.Backup, error) {
	limited, cancel := background.AtMost(ctx, patience)
	defer cancel()
	one, err := b.prepare(limited, v, one)
	if err != nil {
		return one, err
	}
	files, err := b.create(ctx, v, one)
	if err != nil {
		return one, err
	}
	defer closeAll(files)
	job := domain.Backup{Disks: disksOf(one), Checkpoint: one.Checkpoint, Since: one.Since, Pull: one.Pull}
	begin := func() error {
		limited, cancel := background.AtMost(ctx, patience)
		defer cancel()
		return b.o.Domains.Begin(limited, v.Record().Domain.UUID, job, files)
	}
	if one.Quiesce == string(order.QuiesceSkipped) {
		return one, begin()
	}
	quiesced, err := b.frozen(ctx, v, begin)
	if err != nil {
		return one, err
	}
	if quiesced == nil {
		one.Quiesce = string(order.QuiesceSucceeded)
	} else {
		one.Warning = warn(one.Warning, "the guest's file systems were not frozen: "+quiesced.Error())
	}
	return one, b.update(ctx, v, one)
}

// create creates the files of a backup.
func (b *Backups) create(ctx context.Context, v *table.VM, one record.Backup) ([]*os.File, error) {
	var files []*os.File
	err := b.within(ctx, createTime, v, func() (err error) {
		files, err = b.o.Files.Create(one)
		return err
	})
	if errors.Is(err, background.ErrVolume) {
		b.volumes.Of(v).Later(func() {
			closeAll(files)
			_ = b.o.Files.Remove(one)
		})
		return nil, err
	}
	return files, err
}

// closeAll closes files that QEMU has got, or that are empty.
func closeAll(files []*os.File) {
	for _, f := range files {
		_ = f.Close()
	}
}

// errThawed is why a freeze was no use.
var errThawed = errors.New("the guest thawed them before the backup began")

// frozen does something while the guest's file systems are frozen. It returns why they were not, if
// so, and whether that failed.
func (b *Backups) frozen(ctx context.Context, v *table.VM, do func() error) (quiesced, err error) {
	limited, cancel := background.AtMost(ctx, quiesceTime)
	defer cancel()
	if quiesced = b.o.Freezes.Freeze(limited, v, freezeTime); quiesced == nil {
		defer b.thaw(ctx, v)
	}
	if err := do(); err != nil || quiesced != nil {
		return quiesced, err
	}
	still, quiesced := b.o.Freezes.Frozen(limited, v)
	if quiesced == nil && !still {
		quiesced = errThawed
	}
	return quiesced, nil
}

// thaw ends the freeze for a backup. If that fails, its end retries.
func (b *Backups) thaw(ctx context.Context, v *table.VM) {
	limited, cancel := background.AtMost(ctx, patience)
	defer cancel()
	if err := b.o.Freezes.Thaw(limited, v); err != nil {
		table.Logger(b.o.Logger, v.Record()).Warn("thawing the guest's file systems failed, retrying", "error", err)
	}
}

// prepare finds out what QEMU can do, and forgets the checkpoints that no later backup follows. The
// record says then what the backup will be.
func (b *Backups) prepare(ctx context.Context, v *table.VM, one record.Backup) (record.Backup, error) {
	uuid := v.Record().Domain.UUID
	if err := b.clear(ctx, uuid, disksOf(one)); err != nil {
		return one, err
	}
	if err := b.o.Domains.Keep(ctx, uuid, kept(one)); err != nil {
		return one, err
	}
	sources, err := b.o.Domains.Sources(ctx, uuid)
	if err != nil {
		return one, err
	}
	one.Disks = slices.Clone(one.Disks)
	for i := range one.Disks {
		d := &one.Disks[i]
		if err := b.renew(ctx, v.Record(), d.Name); err != nil {
			return one, err
		}
		from, has := sources[d.Target]
		if !has {
			return one, fmt.Errorf("QEMU has no disk %s", d.Target)
		}
		d.Size = from.Size
		if one.Since == "" {
			continue
		}
		why := ""
		if disk, _ := diskOf(v.Record(), d.Name); disk.Shareable {
			why = "other VMs may write to it"
		} else if !slices.Contains(from.Checkpoints, one.Since) {
			why = "its changes are known only while the same QEMU has it open, in the same size"
		}
		if why != "" {
			one.Warning = warn(one.Warning, fmt.Sprintf("the backup is full: not all changes of disk %s since checkpoint %s are known: %s", d.Name, one.Since, why))
			one.Since = ""
		}
	}
	return one, b.update(ctx, v, one)
}

// renew prepares a disk that the VM has got since it runs.
func (b *Backups) renew(ctx context.Context, r record.Container, name string) error {
	i := r.FindPlugged(name)
	if i < 0 || r.Plugged[i].Disk.ReadOnly {
		return nil
	}
	file, _, err := b.o.Volumes.Room(r, r.Plugged[i].Disk, 0)
	if err != nil {
		return err
	}
	defer file.Close()
	return b.o.Domains.Renew(ctx, r.Domain.UUID, r.Plugged[i].Set, file)
}

// clear has QEMU end what an earlier backup of the disks has left, if it could not be undone.
func (b *Backups) clear(ctx context.Context, uuid string, disks []domain.BackupDisk) error {
	ended, err := b.o.Domains.End(ctx, uuid, disks)
	if err == nil && !ended {
		err = fmt.Errorf("%w: QEMU has not ended an earlier backup yet; try again", vmerrors.ErrState)
	}
	if err != nil {
		return err
	}
	return b.o.Domains.Close(ctx, uuid, disks)
}

// warn adds a text to a warning.
func warn(warning, text string) string {
	if warning != "" {
		warning += "; "
	}
	return clip(warning + text)
}

// kept returns the checkpoints that a backup leaves if it fails.
func kept(one record.Backup) []string {
	all := slices.Clone(one.Keep)
	if one.Since != "" {
		all = append(all, one.Since)
	}
	return all
}

// disksOf returns the disks of a backup as QEMU knows them.
func disksOf(one record.Backup) []domain.BackupDisk {
	var all []domain.BackupDisk
	for i, d := range one.Disks {
		all = append(all, domain.BackupDisk{Target: d.Target, Size: d.Size, Set: i})
	}
	return all
}
