package vmtest

import (
	"context"
	"fmt"
	"path/filepath"
	"slices"

	"github.com/nodevirt/nodevirt/shim/virtiofs"
)

// Filesystems is a fake of [virtiofs.Servers].
type Filesystems struct{ helpers[fakeServers] }

type fakeServers struct {
	owner   virtiofs.Owner
	folders []virtiofs.Folder
}

// NewFilesystems returns a node without file systems for VMs.
func NewFilesystems(s *Script) *Filesystems {
	return &Filesystems{newHelpers[fakeServers](s, "Filesystems", 1<<23)}
}

// Socket implements virtiofs's.
func (f *Filesystems) Socket(id string, n int) string {
	return filepath.Join("/run/files", id, fmt.Sprintf("%d.sock", n))
}

// Start implements virtiofs's.
func (f *Filesystems) Start(ctx context.Context, o virtiofs.Owner, folders []virtiofs.Folder, started func(pid int) error) error {
	if err := f.script.enter(ctx, "Filesystems.Start"); err != nil {
		return err
	}
	for range folders {
		if err := started(f.nextPID()); err != nil {
			return err
		}
	}
	f.started(o.ID, fakeServers{o, slices.Clone(folders)})
	return nil
}

// Of returns the owner and the folders of a VM's virtiofsd that run.
func (f *Filesystems) Of(id string) (virtiofs.Owner, []virtiofs.Folder) {
	known, _, _ := f.of(id)
	return known.owner, known.folders
}
