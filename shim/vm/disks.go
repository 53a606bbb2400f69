package vm

import (
	"context"
)

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
