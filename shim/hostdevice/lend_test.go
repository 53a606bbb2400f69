package hostdevice

import (
	"os"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/nodevirt/nodevirt/test/needs"
)

// TestLend: the VM's user owns the nodes while it runs, and no other owner's node changes.
func TestLend(t *testing.T) {
	needs.Parts(t, "root")
	n := Node{Root: t.TempDir()}
	all := []Device{{PCI, "0000:65:00.0", "/dev/vfio/12"}, {USB, "1:4", "/dev/bus/usb/001/004"}}
	owner := func(path string) int {
		info, err := os.Lstat(filepath.Join(n.Root, path))
		if err != nil {
			t.Fatal(err)
		}
		return int(info.Sys().(*syscall.Stat_t).Uid)
	}
	for _, d := range all {
		n.write(t, d.Node, "")
	}
	if err := n.Lend(all, 64001); err != nil || owner("/dev/vfio/12") != 64001 || owner("/dev/bus/usb/001/004") != 64001 {
		t.Fatal("lent: ", err, owner("/dev/vfio/12"))
	}
	if err := os.Chown(filepath.Join(n.Root, "/dev/bus/usb/001/004"), 64002, -1); err != nil {
		t.Fatal(err)
	}
	more := append(all[:2:2], Device{USB, "1:5", "/dev/bus/usb/001/005"})
	for range 2 {
		if err := n.TakeBack(more, 64001); err != nil || owner("/dev/vfio/12") != 0 || owner("/dev/bus/usb/001/004") != 64002 {
			t.Fatal("returned: ", err, owner("/dev/vfio/12"), owner("/dev/bus/usb/001/004"))
		}
	}
	if err := n.Lend(more, 64001); err == nil {
		t.Error("a device that is gone was lent")
	}
}
