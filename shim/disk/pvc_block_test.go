package disk

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/nodevirt/nodevirt/shim/record"
	"github.com/nodevirt/nodevirt/shim/witness"
)

// TestLUNOnADisk: a device that takes no SCSI commands is refused before QEMU tries it.
func TestLUNOnADisk(t *testing.T) {
	n := newNode(t)
	d := n.volume(t, "tape", true, "x")
	d.LUN = true
	if err := n.Maker.Create(t.Context(), n.container(t, "c1", d), nil); !errors.Is(err, ErrVolume) ||
		!strings.Contains(err.Error(), "a lun needs a SCSI device") {
		t.Errorf("a lun on a disk: %v", err)
	}
}

// TestDeviceOfAnUnknownGuest: a device that a process of a VM has open is in use, also if the shim knows nothing of
// that VM. By its number: each pod has its own node of it.
func TestDeviceOfAnUnknownGuest(t *testing.T) {
	n := newNode(t)
	d := n.volume(t, "data", true, "x")
	r := n.container(t, "c1", d)
	own := r.Domain.UID
	info, err := os.Stat(d.Host)
	if err != nil {
		t.Fatal(err)
	}
	number := info.Sys().(*syscall.Stat_t).Ino
	writer := witness.Holder{Process: witness.Process{PID: 77, UID: own + 1, Domain: "default_lost_1"}, Writes: true}
	reader := witness.Holder{Process: witness.Process{PID: 78, UID: own + 2}}
	for name, c := range map[string]struct {
		held           []witness.Holder
		reads, shares  bool
		refused        bool
		refusedByNames string
	}{
		"nobody":                 {},
		"a writer":               {held: []witness.Holder{writer}, refused: true, refusedByNames: "process 77 of domain default_lost_1"},
		"a reader":               {held: []witness.Holder{reader}, refused: true, refusedByNames: "process 78"},
		"a writer, to read":      {held: []witness.Holder{writer}, reads: true, refused: true},
		"a reader, to read":      {held: []witness.Holder{reader}, reads: true},
		"a writer, to share":     {held: []witness.Holder{writer}, shares: true},
		"the VM's own processes": {held: []witness.Holder{{Process: witness.Process{PID: 79, UID: own}, Writes: true}}},
	} {
		n.seen.held[number] = c.held
		r := r
		k := d
		k.ReadOnly, k.Shareable = c.reads, c.shares
		r.Spec.Disks = append(r.Spec.Disks[:0:0], k)
		calls := map[string]func() error{
			"create": func() error { return n.Maker.Create(t.Context(), r, nil) },
			"attach": func() error { _, err := n.Attachments.Attach(t.Context(), r); return err },
			"plug": func() error {
				_, f, err := n.Attachments.Plug(t.Context(), r, record.PluggedDisk{Disk: k})
				if f != nil {
					_ = f.Close()
				}
				return err
			},
		}
		for call, do := range calls {
			err := do()
			if errors.Is(err, ErrInUse) != c.refused || !c.refused && err != nil {
				t.Errorf("%s, %s: %v", name, call, err)
			}
			if c.refused && !strings.Contains(err.Error(), c.refusedByNames) {
				t.Errorf("%s, %s: %v does not name %s", name, call, err, c.refusedByNames)
			}
			if err := n.Attachments.Detach(t.Context(), r); err != nil {
				t.Error(err)
			}
		}
	}
}

// TestRemoveNodes: what a VM had of block devices goes, and nothing of another VM, whether the VM has no record, or an old one
// without a disk that the VM has got since.
func TestRemoveNodes(t *testing.T) {
	for name, remove := range map[string]func(n *node) error{
		"without a record": func(n *node) error { return n.Maker.RemoveNodes("a") },
		"detach":           func(n *node) error { return n.Attachments.Detach(t.Context(), record.Container{ID: "a"}) },
	} {
		n := newNode(t)
		dev := fakeDevices{filepath.Join(n.dir, "dev")}
		for _, name := range []string{nodePrefix("a") + "root", nodePrefix("a") + "data", nodePrefix("ab") + "root"} {
			if err := dev.makeNode(dev.path(name), 7, 0, 0); err != nil {
				t.Fatal(err)
			}
		}
		for range 2 { // what has gone is no error
			if err := remove(n); err != nil {
				t.Fatal(err)
			}
		}
		left, err := dev.nodes("nodevirt-")
		if err != nil || len(left) != 1 || filepath.Base(left[0]) != nodePrefix("ab")+"root" {
			t.Errorf("%s: left: %v, %v", name, left, err)
		}
	}
}
