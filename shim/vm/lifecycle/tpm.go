package lifecycle

import (
	"context"

	"github.com/nodevirt/nodevirt/shim/record"
	"github.com/nodevirt/nodevirt/shim/tpm"
)

// startTPM starts the VM's TPM, in the VM's cgroup.
func (s *start) startTPM(ctx context.Context) error {
	if !s.rec.Spec.TPM {
		return nil
	}
	d := s.rec.Domain
	owner := tpm.Owner{ID: s.rec.ID, UID: d.TPMUID, Client: d.UID}
	state, err := openTPMState(s.rec)
	if err != nil {
		return err
	}
	if state != nil {
		defer state.Close()
		owner.State, owner.Lock, owner.Arrives = state.Folder, state.Lock, s.rec.Incoming != ""
	}
	_, err = s.parts.tpms.Start(ctx, owner, func(pid int) error { return s.parts.groups.Add(s.rec, pid) })
	return err
}

func (t *teardown) removeTPM(ctx context.Context, r *record.Container) error {
	if !r.Spec.TPM {
		return nil
	}
	return t.tpms.Remove(ctx, r.ID)
}
