package vmtest

import (
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
	testWatched(t, all, o.ID, start)
}
