package vm

import (
	"context"
	"errors"
	"fmt"

	"github.com/nodevirt/nodevirt/imageunpack"
	"github.com/nodevirt/nodevirt/shim/record"
	"github.com/nodevirt/nodevirt/shim/vmspec"
)

// holdDisks finds out what the disks of a container are made of. Where nobody says
// how they are attached, a CD's image is a CD.
func (m *Manager) holdDisks(ctx context.Context, r *record.Container, own imageunpack.Disk) (err error) {
	r.Disks, err = m.Disks.Hold(ctx, r.ID, r.Spec, own)
	if errors.Is(err, imageunpack.ErrUnusable) || errors.Is(err, imageunpack.ErrNoDisk) {
		return fmt.Errorf("%w: %w", ErrInvalid, err)
	}
	if err != nil || vmspec.HasVMI(r.Sandbox.Value.GetAnnotations()) {
		return err
	}
	r.Spec = r.Spec.WithCDROMs(func(d vmspec.Disk) bool {
		image := r.Disks[d.Name].Image
		return image != nil && image.CD
	})
	return nil
}

func (l *launch) attachDisks(ctx context.Context) (err error) {
	l.files, err = l.Disks.Attach(ctx, l.rec)
	return err
}

func (l *launch) detachDisks(ctx context.Context) error { return l.Disks.Detach(ctx, l.rec) }

// closeFiles closes the disks' files: QEMU has its own.
func (l *launch) closeFiles() {
	for _, group := range l.files {
		for _, f := range group {
			f.Close()
		}
	}
}
