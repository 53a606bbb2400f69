package lifecycle

import (
	"context"
	"errors"

	"github.com/nodevirt/nodevirt/shim/hostdevice"
	"github.com/nodevirt/nodevirt/shim/record"
	"github.com/nodevirt/nodevirt/shim/vmspec"
)

// lendDevices lets QEMU open the node's devices that the VM has.
func (s *start) lendDevices(context.Context) error {
	err := s.parts.hostDevices.Lend(s.rec.HostDevices, s.rec.Domain.UID)
	if err == nil && usesSEV(s.rec) {
		err = s.parts.hostDevices.Share(hostdevice.SEV, s.rec.Domain.UID)
	}
	return err
}

// usesSEV reports whether QEMU opens the processor's device that encrypts guests' memory.
func usesSEV(r record.Container) bool {
	return r.Spec.LaunchSecurity.Encrypts(vmspec.EncryptionSEV, vmspec.EncryptionSNP)
}

func (t *teardown) takeBackDevices(_ context.Context, r *record.Container) error {
	err := t.hostDevices.TakeBack(r.HostDevices, r.Domain.UID)
	if usesSEV(*r) {
		err = errors.Join(err, t.hostDevices.Unshare(hostdevice.SEV, r.Domain.UID))
	}
	return err
}
