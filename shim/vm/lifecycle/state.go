package lifecycle

import (
	"context"

	"github.com/nodevirt/nodevirt/shim/record"
	"github.com/nodevirt/nodevirt/shim/vmstate"
)

// openVariables opens the persistent variables of the VM's firmware, if it has any. QEMU has its own
// descriptor after the start, and so no other VM has the variables until QEMU ends. Those of a guest
// that comes from another node are its source's until it is handed over.
func (s *start) openVariables(context.Context) (err error) {
	if s.rec.Incoming != "" {
		return nil
	}
	s.variables, err = s.parts.describer.Files.Variables(s.rec)
	return err
}

// keepVariables makes QEMU write to them, and not to the copy that it has started with.
func (s *start) keepVariables(ctx context.Context) error {
	if s.variables == nil {
		return nil
	}
	uuid := s.rec.Domain.UUID
	return s.parts.late.note(uuid, s.parts.domains.KeepVariables(ctx, uuid, s.variables))
}

// openTPMState opens the persistent state of the VM's TPM; nil if it has none.
func openTPMState(r record.Container) (*vmstate.TPMState, error) {
	switch {
	case r.Spec.State == nil || !r.Spec.State.TPM:
		return nil, nil
	case r.Incoming != "":
		return vmstate.ArrivingTPM(r.Spec.State.Folder)
	}
	return vmstate.TPM(r.Spec.State.Folder, r.Domain.TPMUID)
}
