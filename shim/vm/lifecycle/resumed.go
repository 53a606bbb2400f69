package lifecycle

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"

	"github.com/nodevirt/nodevirt/shim/checkpoint"
	"github.com/nodevirt/nodevirt/shim/domain/fdpass/server"
	"github.com/nodevirt/nodevirt/shim/forks"
	"github.com/nodevirt/nodevirt/shim/migrate/compat"
	"github.com/nodevirt/nodevirt/shim/vm/table"
	"github.com/nodevirt/nodevirt/shim/vmspec"
)

// resumed returns the domain of a guest that goes on from a checkpoint: the node's own description,
// which must have the same devices, with the shape of the domain that was saved. A guest with a VM generation
// ID sees another one, and renews its kernel's random numbers.
func resumed(text, generation string, m checkpoint.Manifest) (string, error) {
	outline, err := compat.Outline(text)
	if err == nil {
		err = compat.SameOutline(outline, m.Devices)
	}
	var shape compat.Shape
	if err == nil {
		shape, err = compat.Decode(m.Shape)
	}
	if err == nil {
		if shape.Generation != "" {
			shape.Generation = generation
		}
		text, err = compat.Apply(text, shape)
	}
	if err != nil {
		return "", fmt.Errorf("the guest cannot go on from its checkpoint: %w", unusable(err))
	}
	return text, nil
}

// openMemory finds the memory of the checkpoint, with RAM that VMs from the same one share if QEMU can
// map it.
func (s *start) openMemory(ctx context.Context) (err error) {
	if s.memory, err = os.Open(s.parts.layout.MemoryFile(s.rec.ID)); err != nil {
		return fmt.Errorf("open the memory of the checkpoint: %w", err)
	}
	if why := ownMemory(s.rec.Spec); why != "" {
		table.Logger(s.parts.log, s.rec).Info("the guest's memory is not shared with others from its checkpoint", "reason", why)
		return nil
	}
	s.fork, err = s.parts.forks.Open(ctx, s.rec.Sandbox.Value.GetMetadata().GetNamespace(), *s.rec.Restored, s.rec.Spec.Memory, s.memory)
	if errors.Is(err, forks.ErrNotShared) {
		table.Logger(s.parts.log, s.rec).Info("the guest's memory is not shared with others from its checkpoint", "reason", err)
		_, err = s.memory.Seek(0, io.SeekStart)
	}
	if err != nil {
		return fmt.Errorf("checkpoint: %w", unusable(err))
	}
	return nil
}

// ownMemory returns why a VM cannot share RAM, empty if it can.
func ownMemory(spec vmspec.Spec) string {
	switch {
	case spec.Arch() != vmspec.AMD64:
		return "it is no PC's"
	case spec.HugePage > 0:
		return "it has huge pages"
	case len(spec.Filesystems) > 0:
		return "virtiofsd reads it"
	case spec.LockMemory:
		return "it is locked"
	case spec.LaunchSecurity != nil:
		return "it is encrypted"
	}
	return ""
}

// resumeDomain starts QEMU with the checkpoint's memory, whose file nothing needs any more then.
func (s *start) resumeDomain(ctx context.Context) (pid int, err error) {
	stream, err := s.stream()
	if err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, stream.Close()) }()
	pid, err = s.parts.domains.Restore(ctx, s.rec.Domain.UUID, s.files, stream, s.parts.layout.MemoryPipe(s.rec.ID))
	if err != nil {
		return 0, err
	}
	return pid, os.Remove(s.memory.Name())
}

// stream returns what QEMU reads of the guest's memory. Closed, it serves no RAM any more.
func (s *start) stream() (io.ReadCloser, error) {
	if s.fork == nil {
		return checkpoint.OpenMemory(s.memory, *s.rec.Restored)
	}
	ram, err := server.Serve(s.parts.layout.RAMSocket(s.rec.ID), s.rec.Domain.UID, s.rec.Domain.GID, "ram", s.fork.RAM)
	if err != nil {
		return nil, err
	}
	return struct {
		io.Reader
		io.Closer
	}{s.fork.Rest, ram}, nil
}
