package lifecycle

import (
	"context"

	"github.com/nodevirt/nodevirt/shim/record"
)

// lendDevices lets QEMU open the node's devices that the VM has.
func (s *start) lendDevices(context.Context) error {
	return s.parts.hostDevices.Lend(s.rec.HostDevices, s.rec.Domain.UID)
}

func (t *teardown) takeBackDevices(_ context.Context, r *record.Container) error {
	return t.hostDevices.TakeBack(r.HostDevices, r.Domain.UID)
}
