package vmtest

import (
	"context"
	"fmt"

	"github.com/nodevirt/nodevirt/shim/domain"
)

// Sizes is a fake of [domain.Sizes].
type Sizes struct{ libvirt *Libvirt }

// Size implements domain's.
func (s *Sizes) Size(ctx context.Context, uuid string) (domain.Size, error) {
	l := s.libvirt
	d, err := l.onRunning(ctx, "Size", uuid)
	if err != nil {
		return domain.Size{}, err
	}
	defer l.mu.Unlock()
	return d.size, nil
}

// AddVCPUs implements domain's.
func (s *Sizes) AddVCPUs(ctx context.Context, uuid string, count uint32) error {
	l := s.libvirt
	d, err := l.onRunning(ctx, "AddVCPUs", uuid)
	if err != nil {
		return err
	}
	defer l.mu.Unlock()
	if count > d.maximum.VCPUs {
		return fmt.Errorf("add vCPUs to domain %s: %d are more than the maximum, %d", uuid, count, d.maximum.VCPUs)
	}
	d.size.VCPUs = max(d.size.VCPUs, count)
	return nil
}

// AddRAM implements domain's. The guest has what is added, beside what the balloon has left it.
func (s *Sizes) AddRAM(ctx context.Context, uuid string, bytes int64) error {
	l := s.libvirt
	d, err := l.onRunning(ctx, "AddRAM", uuid)
	if err != nil {
		return err
	}
	defer l.mu.Unlock()
	if bytes > d.maximum.RAM {
		return fmt.Errorf("add RAM to domain %s: %d bytes are more than the maximum, %d", uuid, bytes, d.maximum.RAM)
	}
	if more := bytes - d.size.RAM; more > 0 {
		d.size.RAM, d.memory = bytes, d.memory+more
	}
	return nil
}
