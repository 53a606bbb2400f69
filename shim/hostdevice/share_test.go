package hostdevice

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"golang.org/x/sys/unix"
)

// TestShare: VMs that start and end at the same time each have their entry, and other users get none.
func TestShare(t *testing.T) {
	n := Node{Root: t.TempDir()}
	n.write(t, SEV, "")
	path := filepath.Join(n.Root, SEV)
	if err := os.Chmod(path, 0o600); err != nil {
		t.Fatal(err)
	}
	var wait sync.WaitGroup
	for i := range uint32(8) {
		wait.Go(func() {
			for range 3 { // as a start that is tried again
				if err := n.Share(SEV, 64000+i); err != nil {
					t.Error(err)
				}
			}
			if i%2 == 0 {
				if err := n.Unshare(SEV, 64000+i); err != nil {
					t.Error(err)
				}
			}
		})
	}
	wait.Wait()
	want := []entry{
		{tagOwner, 6, noID}, {tagUser, 6, 64001}, {tagUser, 6, 64003}, {tagUser, 6, 64005}, {tagUser, 6, 64007},
		{tagGroup, 0, noID}, {tagMask, 6, noID}, {tagOther, 0, noID},
	}
	if got, err := readList(path, 0); err != nil || !slices.Equal(got, want) {
		t.Errorf("got %v, %v, want %v", got, err, want)
	}
	for i := range uint32(8) {
		if err := n.Unshare(SEV, 64000+i); err != nil {
			t.Error(err)
		}
	}
	if got, err := readList(path, 0); err != nil || slices.ContainsFunc(got, func(e entry) bool { return e.Tag == tagUser }) {
		t.Errorf("after the last VM: %v, %v", got, err)
	}
}

func TestShareRefuses(t *testing.T) {
	n := Node{Root: t.TempDir()}
	if err := n.Unshare(SEV, 64000); err != nil {
		t.Error(err)
	}
	if err := n.Share(SEV, 64000); err == nil || !strings.Contains(err.Error(), "let QEMU open /dev/sev") {
		t.Errorf("a missing node: %v", err)
	}
	n.link(t, "/etc/passwd", SEV)
	if err := n.Share(SEV, 64000); err == nil || !strings.Contains(err.Error(), "it is a link") {
		t.Errorf("a link: %v", err)
	}
	if err := os.Remove(filepath.Join(n.Root, SEV)); err != nil {
		t.Fatal(err)
	}
	n.write(t, SEV, "")
	if err := unix.Lsetxattr(filepath.Join(n.Root, SEV), listAttribute, []byte("x"), 0); err == nil {
		t.Error("the kernel took a list of one byte")
	}
}
