package vmtest

import (
	"testing"

	"github.com/nodevirt/nodevirt/shim/tpm"
	"github.com/nodevirt/nodevirt/shim/vm/lifecycle"
)

// TestTPMs is the suite of TPMs. The owner's user ids are free.
func TestTPMs(t *testing.T, all lifecycle.TPMs, o tpm.Owner) {
	t.Helper()
	ctx := t.Context()
	start := func() int {
		t.Helper()
		placed := 0
		pid, err := all.Start(ctx, o, func(pid int) error { placed = pid; return nil })
		if err != nil || pid == 0 || placed != pid {
			t.Fatalf("process %d, placed %d, %v", pid, placed, err)
		}
		return pid
	}
	first := start()
	if pid, err := all.Start(ctx, o, func(int) error { return nil }); err != nil || pid != first {
		t.Errorf("process %d, %v, after process %d", pid, err, first)
	}
	testWatched(t, all, o.ID, func() { start() })
}
