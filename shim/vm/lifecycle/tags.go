package lifecycle

import (
	"context"

	"github.com/nodevirt/nodevirt/shim/record"
	"github.com/nodevirt/nodevirt/shim/vmspec"
)

// tagger writes the tags of a VM's devices to its config drive.
type tagger struct {
	domains interface {
		Tagged(ctx context.Context, uuid string, spec vmspec.Spec) ([]vmspec.TaggedDevice, error)
	}
	disks interface {
		WriteDevices(r record.Container, devices []vmspec.TaggedDevice) error
	}
}

func newTagger(p parts) tagger { return tagger{p.domains, p.disks} }

// write works for a domain that is defined, or runs. libvirt chooses the addresses when it defines
// the domain, so that the drive can have them only then.
func (t tagger) write(ctx context.Context, r record.Container) error {
	if vmspec.Tagged(r.Spec) == 0 {
		return nil
	}
	devices, err := t.domains.Tagged(ctx, r.Domain.UUID, r.Spec)
	if err != nil {
		return err
	}
	return t.disks.WriteDevices(r, devices)
}
