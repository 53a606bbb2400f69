package vmtest

import (
	"context"
	"path/filepath"
	"sync"

	"github.com/nodevirt/nodevirt/shim/tpm"
)

// TPMs is a fake of [tpm.TPMs].
type TPMs struct {
	script *Script

	mu      sync.Mutex
	changed chan struct{}
	running map[string]fakeTPM
	lastPID int
}

type fakeTPM struct {
	owner tpm.Owner
	pid   int
}

// NewTPMs returns a node without TPMs.
func NewTPMs(s *Script) *TPMs {
	return &TPMs{script: s, changed: make(chan struct{}), running: map[string]fakeTPM{}, lastPID: 1 << 22}
}

// Socket implements tpm's.
func (t *TPMs) Socket(id string) string { return filepath.Join("/run/tpms", id, "socket") }

// Start implements tpm's.
func (t *TPMs) Start(ctx context.Context, o tpm.Owner, started func(pid int) error) (int, error) {
	if err := t.script.enter(ctx, "TPMs.Start"); err != nil {
		return 0, err
	}
	t.mu.Lock()
	t.lastPID++
	pid, runs := t.lastPID, t.running[o.ID]
	t.mu.Unlock()
	if runs.pid != 0 {
		return runs.pid, nil
	}
	if err := started(pid); err != nil {
		return 0, err
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	t.running[o.ID] = fakeTPM{o, pid}
	return pid, nil
}

// Watch implements tpm's.
func (t *TPMs) Watch(ctx context.Context, id string) error {
	if err := t.script.enter(ctx, "TPMs.Watch"); err != nil {
		return err
	}
	for {
		_, runs, changed := t.Owner(id)
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

// Remove implements tpm's.
func (t *TPMs) Remove(ctx context.Context, id string) error {
	if err := t.script.enter(ctx, "TPMs.Remove"); err != nil {
		return err
	}
	t.Kill(id)
	return nil
}

// Sweep implements tpm's.
func (t *TPMs) Sweep(ctx context.Context, known func(id string) bool) error {
	if err := t.script.enter(ctx, "TPMs.Sweep"); err != nil {
		return err
	}
	for _, id := range t.Left() {
		if !known(id) {
			t.Kill(id)
		}
	}
	return nil
}

// Kill ends a VM's TPM.
func (t *TPMs) Kill(id string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	delete(t.running, id)
	close(t.changed)
	t.changed = make(chan struct{})
}

// Owner returns the owner of a TPM that runs, and a channel that is closed when one ends.
func (t *TPMs) Owner(id string) (tpm.Owner, bool, <-chan struct{}) {
	t.mu.Lock()
	defer t.mu.Unlock()
	o, runs := t.running[id]
	return o.owner, runs, t.changed
}

// Left returns the containers whose TPMs run.
func (t *TPMs) Left() []string {
	t.mu.Lock()
	defer t.mu.Unlock()
	var all []string
	for id := range t.running {
		all = append(all, id)
	}
	return all
}
