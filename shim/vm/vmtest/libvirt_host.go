package vmtest

import (
	"context"

	"github.com/nodevirt/nodevirt/shim/domain"
)

// Host is the part of a fake libvirtd that reports what the node offers.
type Host struct {
	libvirt *Libvirt
	// Offered is what it reports. A test sets it before calls.
	Offered domain.Encryption
}

// Encryption implements domain's.
func (h *Host) Encryption(ctx context.Context, _ domain.Accelerator, _ string) (domain.Encryption, error) {
	if err := h.libvirt.enter(ctx, "Encryption"); err != nil {
		return domain.Encryption{}, err
	}
	defer h.libvirt.mu.Unlock()
	return h.Offered, nil
}
