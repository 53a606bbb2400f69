package lifecycle

import (
	"context"
	"log/slog"
	"time"

	"github.com/nodevirt/nodevirt/shim/record"
	"github.com/nodevirt/nodevirt/shim/tpm"
	"github.com/nodevirt/nodevirt/shim/vm/background"
	"github.com/nodevirt/nodevirt/shim/vm/table"
)

// startTPM starts the VM's TPM, in the VM's cgroup.
func (s *start) startTPM(ctx context.Context) error {
	if !s.rec.Spec.TPM {
		return nil
	}
	d := s.rec.Domain
	_, err := s.parts.tpms.Start(ctx, tpm.Owner{ID: s.rec.ID, UID: d.TPMUID, Client: d.UID},
		func(pid int) error { return s.parts.groups.Add(s.rec, pid) })
	return err
}

func (t *teardown) removeTPM(ctx context.Context, r *record.Container) error {
	if !r.Spec.TPM {
		return nil
	}
	return t.tpms.Remove(ctx, r.ID)
}

// tpmKeeper reports the TPMs of running VMs that end. QEMU does not connect to another
// one, which would not know what its guest has measured.
type tpmKeeper struct {
	tpms  TPMs
	tasks *background.Tasks
	log   *slog.Logger
}

// endTime is how long a VM may take to end after its TPM.
const endTime = time.Minute

// keep reports the end of a running VM's TPM.
func (k *tpmKeeper) keep(v *table.VM) {
	r := v.Record()
	if !r.Spec.TPM {
		return
	}
	k.tasks.Run(func(ctx context.Context) {
		log := table.Logger(k.log, r)
		if err := k.tpms.Watch(ctx, r.ID); ctx.Err() != nil {
			return
		} else if err != nil {
			log.Error("watching a TPM failed", "error", err)
			return
		}
		select { // QEMU ends it with itself
		case <-ctx.Done():
		case <-v.Exited():
		case <-time.After(endTime):
			log.Error("swtpm ended: the guest has no TPM until the VM starts again")
		}
	})
}
