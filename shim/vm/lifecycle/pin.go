package lifecycle

import (
	"context"
	"fmt"

	"github.com/nodevirt/nodevirt/shim/domain"
	"github.com/nodevirt/nodevirt/shim/record"
)

// pinner places the threads of VMs with dedicated processors on them.
type pinner struct {
	describer Describer
	domains   interface {
		Pin(ctx context.Context, uuid string, p domain.Pins) error
	}
}

// pin places a VM's threads on the processors of its resources. They are in its cgroup.
func (p pinner) pin(ctx context.Context, r record.Container) error {
	if !r.Spec.CPU.Dedicated {
		return nil
	}
	pins, err := domain.PinsOf(p.describer.Describe(r))
	if err != nil {
		return fmt.Errorf("place the VM's threads: %w", err)
	}
	return p.domains.Pin(ctx, r.Domain.UUID, pins)
}
