package vmtest

import (
	"context"
	"os"
	"path/filepath"

	"github.com/nodevirt/nodevirt/shim/tpm"
)

// TPMs is a fake of [tpm.TPMs].
type TPMs struct{ helpers[fakeTPM] }

type fakeTPM struct {
	owner tpm.Owner
	pid   int
}

// NewTPMs returns a node without TPMs.
func NewTPMs(s *Script) *TPMs { return &TPMs{newHelpers[fakeTPM](s, "TPMs", 1<<22)} }

// Socket implements tpm's.
func (t *TPMs) Socket(id string) string { return filepath.Join("/run/tpms", id, "socket") }

// Start implements tpm's.
func (t *TPMs) Start(ctx context.Context, o tpm.Owner, started func(pid int) error) (int, error) {
	if err := t.script.enter(ctx, "TPMs.Start"); err != nil {
		return 0, err
	}
	if known, runs, _ := t.of(o.ID); runs {
		return known.pid, nil
	}
	pid := t.nextPID()
	if err := started(pid); err != nil {
		return 0, err
	}
	t.started(o.ID, fakeTPM{o, pid})
	return pid, nil
}

// PID implements tpm's.
func (t *TPMs) PID(id string) (int, error) {
	known, _, _ := t.of(id)
	return known.pid, nil
}

// Keep implements tpm's. Its TPMs have no state.
func (t *TPMs) Keep(id string, adopt func(from string) error) error {
	if known, runs, _ := t.of(id); !runs || !known.owner.Arrives {
		return nil
	}
	return adopt(os.TempDir())
}

// Owner returns the owner of a TPM that runs, and a channel that is closed when one ends.
func (t *TPMs) Owner(id string) (tpm.Owner, bool, <-chan struct{}) {
	known, runs, changed := t.of(id)
	return known.owner, runs, changed
}
