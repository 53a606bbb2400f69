package vmtest

import (
	"context"
	"fmt"
	"path/filepath"
	"slices"
	"sync"

	"github.com/nodevirt/nodevirt/shim/virtiofs"
)

// Filesystems is a fake of [virtiofs.Servers].
type Filesystems struct {
	script *Script

	mu      sync.Mutex
	changed chan struct{}
	running map[string]fakeServers
	lastPID int
}

type fakeServers struct {
	owner   virtiofs.Owner
	folders []virtiofs.Folder
}

// NewFilesystems returns a node without file systems for VMs.
func NewFilesystems(s *Script) *Filesystems {
	return &Filesystems{script: s, changed: make(chan struct{}), running: map[string]fakeServers{}, lastPID: 1 << 23}
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
		f.mu.Lock()
		f.lastPID++
		pid := f.lastPID
		f.mu.Unlock()
		if err := started(pid); err != nil {
			return err
		}
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.running[o.ID] = fakeServers{o, slices.Clone(folders)}
	return nil
}

// Watch implements virtiofs's.
func (f *Filesystems) Watch(ctx context.Context, id string) error {
	if err := f.script.enter(ctx, "Filesystems.Watch"); err != nil {
		return err
	}
	for {
		f.mu.Lock()
		_, runs := f.running[id]
		changed := f.changed
		f.mu.Unlock()
		if !runs {
			return nil
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// Remove implements virtiofs's.
func (f *Filesystems) Remove(ctx context.Context, id string) error {
	if err := f.script.enter(ctx, "Filesystems.Remove"); err != nil {
		return err
	}
	f.Kill(id)
	return nil
}

// Sweep implements virtiofs's.
func (f *Filesystems) Sweep(ctx context.Context, known func(id string) bool) error {
	if err := f.script.enter(ctx, "Filesystems.Sweep"); err != nil {
		return err
	}
	for _, id := range f.Left() {
		if !known(id) {
			f.Kill(id)
		}
	}
	return nil
}

// Kill ends a VM's virtiofsd.
func (f *Filesystems) Kill(id string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	delete(f.running, id)
	close(f.changed)
	f.changed = make(chan struct{})
}

// Of returns the owner and the folders of a VM's virtiofsd that run.
func (f *Filesystems) Of(id string) (virtiofs.Owner, []virtiofs.Folder) {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.running[id].owner, f.running[id].folders
}

// Left returns the containers whose virtiofsd run.
func (f *Filesystems) Left() []string {
	f.mu.Lock()
	defer f.mu.Unlock()
	var all []string
	for id := range f.running {
		all = append(all, id)
	}
	return all
}
