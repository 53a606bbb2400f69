package backup

import (
	"context"
	"fmt"
	"regexp"
	"strings"

	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/nodevirt/nodevirt/shim/record"
	"github.com/nodevirt/nodevirt/shim/vm/control"
	"github.com/nodevirt/nodevirt/shim/vm/hotplug/order"
	"github.com/nodevirt/nodevirt/shim/vm/table"
	"github.com/nodevirt/nodevirt/shim/vm/vmerrors"
)

// Controls returns the names of the machine controls of backups.
func Controls() []string {
	return []string{order.BackUp, order.BackupStatus, order.BackupCancel, order.BackupServe, order.BackupFinish}
}

// Do carries out a machine control with its argument, and returns its answer.
func (b *Backups) Do(ctx context.Context, v *table.VM, name, argument string) ([]byte, error) {
	switch name {
	case order.BackUp:
		return control.Answer(ctx, v, argument, b.backUp)
	case order.BackupStatus:
		return control.Answer(ctx, v, argument, func(_ context.Context, v *table.VM, a order.Name) (order.Backup, error) {
			return about(v.Record(), a.Name), nil
		})
	case order.BackupCancel:
		return control.Answer(ctx, v, argument, b.cancel)
	case order.BackupServe:
		return control.Answer(ctx, v, argument, pulls{b}.serve)
	case order.BackupFinish:
		return control.Answer(ctx, v, argument, pulls{b}.finish)
	}
	return nil, fmt.Errorf("%w: there is no control %q of backups", vmerrors.ErrInvalid, name)
}

// element is a name of a backup, a checkpoint, a folder or a file. It is no hidden one.
var element = regexp.MustCompile(`^[A-Za-z0-9][-A-Za-z0-9._]{0,254}$`)

// check refuses orders that no backup can have.
func check(a order.BackupFiles) error {
	invalid := func(format string, args ...any) error {
		return fmt.Errorf("%w: %s", vmerrors.ErrInvalid, fmt.Sprintf(format, args...))
	}
	switch {
	case len(validation.IsDNS1123Label(a.Volume)) > 0:
		return invalid("%.80q is not the name of a volume", a.Volume)
	case len(a.Disks) == 0 || len(a.Disks) > order.MaxBackupDisks:
		return invalid("a backup has 1 to %d disks, not %d", order.MaxBackupDisks, len(a.Disks))
	case len(a.Keep) > order.MaxCheckpoints:
		return invalid("a VM has at most %d checkpoints, not %d; delete trackers that are not used", order.MaxCheckpoints, len(a.Keep))
	}
	folders := strings.Split(a.Folder, "/")
	if len(folders) > 2 {
		return invalid("folder %.80q has more than two elements", a.Folder)
	}
	names := append(folders, a.Name)
	for _, checkpoint := range append([]string{a.Checkpoint, a.Since}, a.Keep...) {
		if checkpoint != "" {
			names = append(names, checkpoint)
		}
	}
	seen := map[string]bool{}
	for _, d := range a.Disks {
		if !strings.HasSuffix(d.File, order.BackupSuffix) || seen[d.File] || seen[d.Disk] {
			return invalid("file %.80q is repeated or does not end in %s, or disk %.80q is repeated", d.File, order.BackupSuffix, d.Disk)
		}
		seen[d.File], seen[d.Disk] = true, true
		names = append(names, d.Disk, d.File)
	}
	for _, name := range names {
		if !element.MatchString(name) {
			return invalid("%.80q is not a name: one has letters, digits, '-', '.' and '_'", name)
		}
	}
	return nil
}

// about returns what a record says of a backup.
func about(r record.Container, name string) order.Backup {
	b := r.Backup
	if b == nil || b.Name != name || r.State != record.Running {
		return order.Backup{Name: name, State: order.BackupNone}
	}
	now := order.Backup{
		Name: name, State: order.BackupState(b.State), Readers: b.Readers, Incremental: b.Since != "", Quiesce: order.Quiesce(b.Quiesce),
		Start: b.Start, End: b.End, Message: b.Message, Warning: b.Warning,
	}
	for _, d := range b.Disks {
		now.Disks = append(now.Disks, order.BackedUp{Disk: d.Name, Target: d.Target})
	}
	if isReady(*b) {
		now.State = order.BackupReady
	}
	return now
}

// wait returns what is known of a backup when it has ended, or after a while.
func wait(ctx context.Context, v *table.VM, name string) (order.Backup, error) {
	return control.Settled(ctx, v, func() (now order.Backup, settled bool) {
		now = about(v.Record(), name)
		return now, now.State != order.BackupWriting
	}, order.Backup{Name: name, State: order.BackupNone})
}
