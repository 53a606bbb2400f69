package lifecycle

import (
	"context"
	"errors"
	"fmt"

	"github.com/nodevirt/nodevirt/shim/record"
	"github.com/nodevirt/nodevirt/shim/vm/table"
	"github.com/nodevirt/nodevirt/shim/vmstate"
)

// The persistent state of a VM moves with its guest:
//
//	source: guest stopped ─▶ handed over ─▶ [Yield]
//	target:                                   └──▶ [Reserve] ─▶ taken ─▶ [Inherit] ─▶ guest resumed
//	source, if the target refuses:                    └─────▶ refused ─▶ [Reclaim] ─▶ guest resumed
//
// So one node at a time has the locks, and nothing is written before the target has taken the guest.

// Yield unlocks the persistent state of a VM whose guest is stopped and handed over to another node.
func (l *Lifecycle) Yield(v *table.VM) error { return l.starts.parts.locks(v.Record(), vmstate.Unlock) }

// Reclaim locks the persistent state again, before a guest that stays continues.
func (l *Lifecycle) Reclaim(v *table.VM) error { return l.starts.parts.locks(v.Record(), vmstate.Lock) }

// locks changes the locks that a VM's processes have on its persistent state.
func (p parts) locks(r record.Container, change func(folder string, pid int) error) error {
	s := r.Spec.State
	if s == nil {
		return nil
	}
	var errs []error
	if s.Variables && r.Domain.PID != 0 {
		errs = append(errs, change(s.Folder, r.Domain.PID))
	}
	if s.TPM {
		pid, err := p.tpms.PID(r.ID)
		if err == nil && pid != 0 {
			err = change(s.Folder, pid)
		}
		errs = append(errs, err)
	}
	if err := errors.Join(errs...); err != nil {
		return fmt.Errorf("persistent state of VM container %q: %w", r.ID, err)
	}
	return nil
}

// Reserve locks the persistent state for a guest that has come, and is paused. QEMU has its firmware's
// variables, and writes them when the guest runs.
func (l *Lifecycle) Reserve(ctx context.Context, v *table.VM) (err error) {
	r, p := v.Record(), l.starts.parts
	defer func() {
		if err != nil { // the source needs it now
			err = errors.Join(err, p.locks(r, vmstate.Unlock))
		}
	}()
	if err := p.locks(r, vmstate.Lock); err != nil {
		return err
	}
	variables, err := p.describer.Files.Persistent(r)
	if err != nil || variables == nil {
		return err
	}
	defer variables.Close()
	return p.domains.KeepVariables(ctx, r.Domain.UUID, variables)
}

// Inherit has the TPM of a guest that this node has taken keep its state in the VM's volume. It may be
// called again.
func (l *Lifecycle) Inherit(v *table.VM) error {
	r := v.Record()
	if r.Spec.State == nil || !r.Spec.State.TPM {
		return nil
	}
	return l.starts.parts.tpms.Keep(r.ID, func(from string) error {
		state, err := vmstate.ArrivingTPM(r.Spec.State.Folder)
		if err != nil {
			return err
		}
		return errors.Join(state.Adopt(from, r.Domain.TPMUID), state.Close())
	})
}
