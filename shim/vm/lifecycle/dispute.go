package lifecycle

import (
	"context"
	"fmt"
	"log/slog"
	"time"

	"github.com/nodevirt/nodevirt/shim/domain"
	"github.com/nodevirt/nodevirt/shim/record"
	"github.com/nodevirt/nodevirt/shim/vm/background"
	"github.com/nodevirt/nodevirt/shim/vm/table"
	"github.com/nodevirt/nodevirt/shim/witness"
)

func identityOf(r record.Container) witness.Identity {
	return witness.Identity{Container: r.ID, UID: r.Domain.UID}
}

// qemuOf returns the QEMU of a VM, and false if there is none.
func qemuOf(w Witness, id witness.Identity) (witness.Process, bool, error) {
	all, err := w.Processes()
	if err != nil {
		return witness.Process{}, false, fmt.Errorf("look for QEMU of VM container %q: %w", id.Container, err)
	}
	for _, p := range all {
		if p.Is(id) {
			return p, true, nil
		}
	}
	return witness.Process{}, false, nil
}

// disputes finds and shows guests about which the node's witnesses disagree, and ends their QEMUs.
type disputes struct {
	witness    Witness
	conditions Conditions
	tasks      *background.Tasks
	log        *slog.Logger
	of         *table.PerVM[*endState]
	settle     func(ctx context.Context, v *table.VM) error
}

// partTime is how long QEMU may be there after libvirt reported its end, before that counts as a disagreement.
const partTime = 2 * time.Second

// over reports whether a guest whose end libvirt reports has ended: by its processes. lost says that libvirt does
// not know the guest. The caller has the VM's turn.
func (d *disputes) over(ctx context.Context, v *table.VM, r record.Container, lost bool) (bool, error) {
	qemu, there, err := qemuOf(d.witness, identityOf(r))
	if err != nil {
		return false, err
	}
	if there && v.Dispute() == "" {
		ctx, cancel := background.AtMost(ctx, partTime)
		_ = d.witness.AwaitEnd(ctx, qemu)
		cancel()
		if qemu, there, err = qemuOf(d.witness, identityOf(r)); err != nil {
			return false, err
		}
	}
	testimony := witness.Testimony{Processes: witness.Absent, Libvirt: witness.Ended, Record: witness.Running}
	if there {
		testimony.Processes = witness.Present
	}
	if witness.Judge(testimony).MayRelease() {
		return true, nil
	}
	d.disagree(v, r, qemu, lost)
	return false, nil
}

// disagree shows a guest that runs and that libvirt does not know, or reports as ended.
func (d *disputes) disagree(v *table.VM, r record.Container, qemu witness.Process, lost bool) {
	says := "reports the guest as ended"
	if lost {
		says = "no longer knows the guest"
	}
	message := fmt.Sprintf("libvirt %s, but its QEMU, process %d, runs: shut the guest down from inside, "+
		"or delete its pod, which ends QEMU; nothing of the VM is released before", says, qemu.PID)
	if v.Dispute() != message {
		table.Logger(d.log, r).Error("the node's witnesses disagree about a VM, which is left as it is", "libvirt", says,
			"pid", qemu.PID, "remedy", `see "A guest that libvirt or its record has lost" in docs/node.md`)
	}
	v.SetDispute(message)
	d.conditions.SetState(v, domain.State{Status: domain.StatusRunning, Reason: domain.ReasonNone, PID: qemu.PID})
	d.settleLater(v)
}

// agree ends the report of a disagreement.
func (d *disputes) agree(v *table.VM) {
	if v.Dispute() != "" {
		table.Logger(d.log, v.Record()).Info("libvirt knows the guest again")
		v.SetDispute("")
	}
}

// settleLater settles a VM whose QEMU is there though libvirt reports its end, until the two agree.
func (d *disputes) settleLater(v *table.VM) {
	disputing := &d.of.Of(v).disputing
	if !disputing.CompareAndSwap(false, true) {
		return
	}
	d.tasks.Retry(settlePause, v.Exited(), func(ctx context.Context) bool {
		if err := d.settle(ctx, v); err != nil {
			table.Logger(d.log, v.Record()).Debug("asking for the state of a disputed VM failed, retrying", "error", err)
			return false
		}
		done := v.Dispute() == ""
		if done {
			disputing.Store(false)
		}
		return done
	})
}

// endQEMU ends the QEMU of a VM that libvirt does not know, or has not ended. libvirt has been asked first.
func (d *disputes) endQEMU(ctx context.Context, r record.Container) error {
	qemu, there, err := qemuOf(d.witness, identityOf(r))
	if err != nil || !there {
		return err
	}
	table.Logger(d.log, r).Warn("libvirt does not end the VM's QEMU: ending its process", "pid", qemu.PID)
	return d.witness.End(ctx, identityOf(r))
}
