package vmtest

import (
	"context"
	"testing"

	"github.com/nodevirt/nodevirt/shim/virtiofs"
	"github.com/nodevirt/nodevirt/shim/vm/lifecycle"
)

// TestFilesystems is the suite of Filesystems. The folders exist.
func TestFilesystems(t *testing.T, all lifecycle.Filesystems, o virtiofs.Owner, folders []virtiofs.Folder) {
	t.Helper()
	ctx := t.Context()
	start := func() {
		t.Helper()
		placed := map[int]bool{}
		err := all.Start(ctx, o, folders, func(pid int) error { placed[pid] = true; return nil })
		if err != nil || len(placed) != len(folders) {
			t.Fatalf("%d processes were placed, %v", len(placed), err)
		}
	}
	start()
	over, cancel := context.WithCancel(ctx)
	cancel()
	if err := all.Watch(over, o.ID); err == nil {
		t.Error("a file system that is served has ended")
	}
	ended := make(chan error, 1)
	go func() { ended <- all.Watch(ctx, o.ID) }()
	for range 2 {
		if err := all.Remove(ctx, o.ID); err != nil {
			t.Error(err)
		}
	}
	if err := <-ended; err != nil {
		t.Errorf("watch file systems that end: %v", err)
	}
	start()
	if err := all.Sweep(ctx, func(id string) bool { return id == o.ID }); err != nil {
		t.Error(err)
	}
	if err := all.Watch(over, o.ID); err == nil {
		t.Error("a known VM's file systems were swept")
	}
	if err := all.Sweep(ctx, func(string) bool { return false }); err != nil {
		t.Error(err)
	}
	if err := all.Watch(ctx, o.ID); err != nil {
		t.Errorf("watch file systems that were swept: %v", err)
	}
}
