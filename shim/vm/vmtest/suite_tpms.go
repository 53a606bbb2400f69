package vmtest

import (
	"context"
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
	over, cancel := context.WithCancel(ctx)
	cancel()
	if err := all.Watch(over, o.ID); err == nil {
		t.Error("a TPM that runs has ended")
	}
	ended := make(chan error, 1)
	go func() { ended <- all.Watch(ctx, o.ID) }()
	for range 2 {
		if err := all.Remove(ctx, o.ID); err != nil {
			t.Error(err)
		}
	}
	if err := <-ended; err != nil {
		t.Errorf("watch a TPM that ends: %v", err)
	}
	start()
	if err := all.Sweep(ctx, func(id string) bool { return id == o.ID }); err != nil {
		t.Error(err)
	}
	if err := all.Watch(over, o.ID); err == nil {
		t.Error("a known VM's TPM was swept")
	}
	if err := all.Sweep(ctx, func(string) bool { return false }); err != nil {
		t.Error(err)
	}
	if err := all.Watch(ctx, o.ID); err != nil {
		t.Errorf("watch a TPM that was swept: %v", err)
	}
}
