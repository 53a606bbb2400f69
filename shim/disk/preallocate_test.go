package disk

import (
	"fmt"
	"os"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/nodevirt/nodevirt/imageunpack/expand"
	"github.com/nodevirt/nodevirt/shim/vmspec"
)

// TestPreallocation: of a preallocated volume a disk that is made there has all of its space, also a copy of an image and
// one that has grown; a disk of the user's stays as it is.
func TestPreallocation(t *testing.T) {
	n := newNode(t)
	n.addImage(t, "big", []byte("a larger raw disk"))
	for _, tt := range []struct {
		name  string
		disk  vmspec.Disk
		user  bool // the file is there before
		whole bool
	}{
		{name: "a blank disk", disk: vmspec.Disk{Size: 20 * testMiB, Preallocated: true}, whole: true},
		{name: "a copy of an image", disk: vmspec.Disk{Size: 20 * testMiB, Origin: vmspec.OriginOwn, Preallocated: true}, whole: true},
		{name: "a thin disk", disk: vmspec.Disk{Size: 20 * testMiB}},
		{name: "a disk of the user's", disk: vmspec.Disk{Size: 20 * testMiB, Preallocated: true}, user: true},
	} {
		t.Run(tt.name, func(t *testing.T) {
			folder := filepath.Join(fileSystem(t), "volume")
			makeFolder(t, folder)
			file := filepath.Join(folder, imageFile)
			if tt.user {
				if err := os.WriteFile(file, []byte("precious"), 0o600); err != nil {
					t.Fatal(err)
				}
				if err := os.Truncate(file, 30*testMiB); err != nil {
					t.Fatal(err)
				}
			}
			tt.disk.Name, tt.disk.Source, tt.disk.Host = "d", vmspec.SourcePVC, folder
			if err := n.Maker.Create(t.Context(), n.container(t, "vm-"+fmt.Sprint(len(tt.name)), tt.disk), func(string, expand.Progress) {}); err != nil {
				t.Fatal(err)
			}
			var st syscall.Stat_t
			if err := syscall.Stat(file, &st); err != nil {
				t.Fatal(err)
			}
			if got := st.Blocks*512 >= st.Size; got != tt.whole {
				t.Errorf("%d bytes of %d are allocated", st.Blocks*512, st.Size)
			}
		})
	}
}
