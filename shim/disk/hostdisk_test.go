package disk

import (
	"errors"
	"os"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/nodevirt/nodevirt/shim/vmspec"
)

// TestHostDisk: a file that exists keeps its content and size, one is created only if the spec says so
// and there is room, and none is a link.
func TestHostDisk(t *testing.T) {
	n := newNode(t)
	d := n.volume(t, "d", false, "content")
	d.Source, d.File, d.Size = vmspec.SourceHostDisk, imageFile, 1<<20
	if err := n.Maker.Create(t.Context(), n.container(t, "c1", d), nil); err != nil {
		t.Fatal(err)
	}
	if content, err := os.ReadFile(filepath.Join(d.Host, imageFile)); err != nil || string(content) != "content" {
		t.Errorf("the file holds %q, %v", content, err)
	}
	if err := os.Symlink("disk.img", filepath.Join(d.Host, "link")); err != nil {
		t.Fatal(err)
	}
	for file, tt := range map[string]struct {
		size int64
		cd   bool
		want error
	}{
		"missing": {0, false, errNoHostDisk}, "cd": {1 << 20, true, errNoHostDisk}, "large": {1 << 60, false, syscall.ENOSPC}, "link": {1 << 20, false, ErrVolume},
	} {
		d := d
		d.File, d.Size, d.ReadOnly = file, tt.size, tt.cd
		if err := n.Maker.Create(t.Context(), n.container(t, "c1", d), nil); !errors.Is(err, tt.want) {
			t.Errorf("%s: %v; want %v", file, err, tt.want)
		}
		if _, err := os.Lstat(filepath.Join(d.Host, file)); err == nil && file != "link" {
			t.Errorf("%s was created", file)
		}
	}
}
