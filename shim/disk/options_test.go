package disk

import (
	"errors"
	"os"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/nodevirt/nodevirt/imageunpack/expand"
	"github.com/nodevirt/nodevirt/shim/record"
	"github.com/nodevirt/nodevirt/shim/vmspec"
)

// TestShareable: VMs whose disks are shareable use a volume together, and no other VM beside them.
func TestShareable(t *testing.T) {
	n := newNode(t)
	none := func(string, expand.Progress) {}
	for _, block := range []bool{true, false} {
		alone := n.volume(t, "d", block, "content")
		shared := alone
		shared.Shareable = true
		first, second := n.container(t, "c1", shared), n.container(t, "c2", shared)
		for _, r := range []record.Container{first, second} {
			if err := n.Maker.Create(t.Context(), r, none); err != nil {
				t.Fatalf("block %t: %v", block, err)
			}
			files, err := n.Attachments.Attach(t.Context(), r)
			defer closeAll(files)
			if err != nil {
				t.Errorf("block %t: %v", block, err)
			}
		}
		if block {
			if err := n.Maker.Create(t.Context(), n.container(t, "c3", alone), none); !errors.Is(err, ErrInUse) {
				t.Errorf("a VM that does not share: %v", err)
			}
			if err := os.Remove(alone.Host); err != nil {
				t.Fatal(err)
			}
		}
	}
}

// TestBlockSize: the guest sees the size of its volume's blocks.
func TestBlockSize(t *testing.T) {
	n := newNode(t)
	for name, block := range map[string]bool{"device": true, "folder": false} {
		d := n.volume(t, name, block, "content")
		d.BlockSize.MatchVolume = true
		got := Facts(n.container(t, "c1", d).Disks)[name].BlockSize
		if got.Logical < 512 || got.Logical > 4096 || got.Logical&(got.Logical-1) != 0 || got.Physical < got.Logical {
			t.Errorf("%s: %+v", name, got)
		}
	}
	gone := vmspec.Disk{Name: "d", Source: vmspec.SourcePVC, Host: "/missing", BlockSize: vmspec.BlockSize{MatchVolume: true}}
	for _, gone.Block = range []bool{true, false} {
		if _, err := n.Maker.Acquire(t.Context(), "c1", "shop", []vmspec.Disk{gone}, nil); !errors.Is(err, ErrVolume) {
			t.Errorf("block %t: %v", gone.Block, err)
		}
	}
}

// TestDirect: a disk that asks for that has files that are read past the node's cache; one that can't be
// is refused.
func TestDirect(t *testing.T) {
	file, err := os.CreateTemp(t.TempDir(), "")
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	proc, err := os.Open("/proc/self/status")
	if err != nil {
		t.Fatal(err)
	}
	defer proc.Close()
	direct, cached := Disk{Disk: vmspec.Disk{Cache: "none"}}, Disk{}
	for _, tt := range []struct {
		k    Disk
		f    *os.File
		want error
		flag int
	}{{cached, file, nil, 0}, {direct, file, nil, unix.O_DIRECT}, {direct, proc, ErrVolume, 0}, {cached, proc, nil, 0}} {
		if err := setDirect(tt.k, map[string][]*os.File{"top": {tt.f}}); !errors.Is(err, tt.want) {
			t.Errorf("%s: %v; want %v", tt.f.Name(), err, tt.want)
		}
		if flags, err := unix.FcntlInt(tt.f.Fd(), unix.F_GETFL, 0); err != nil || flags&unix.O_DIRECT != tt.flag {
			t.Errorf("%s: flags %x, %v", tt.f.Name(), flags, err)
		}
	}
}
