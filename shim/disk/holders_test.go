package disk

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/nodevirt/nodevirt/imageunpack/expand"
	"github.com/nodevirt/nodevirt/shim/record"
	"github.com/nodevirt/nodevirt/shim/vmspec"
	"github.com/nodevirt/nodevirt/shim/witness"
)

func noProgress(string, expand.Progress) {}

// inode is what fakeSeen knows a file by.
func inode(t *testing.T, path string) uint64 {
	t.Helper()
	info, err := os.Stat(path)
	if err != nil {
		t.Fatal(err)
	}
	return info.Sys().(*syscall.Stat_t).Ino
}

// TestFileOfAnUnknownGuest: a file that a process of another VM has open is in use, whatever QEMU's locks say.
func TestFileOfAnUnknownGuest(t *testing.T) {
	for name, c := range map[string]struct {
		disk   func(n *node) vmspec.Disk
		file   func(n *node) string
		reader bool // what holds the file
		free   bool
	}{
		"a PVC": {
			disk: func(n *node) vmspec.Disk { return n.volume(t, "data", false, "x") },
			file: func(n *node) string { return filepath.Join(n.dir, "volumes", "data", imageFile) },
		},
		"a reader of a PVC": {
			disk:   func(n *node) vmspec.Disk { return n.volume(t, "data", false, "x") },
			file:   func(n *node) string { return filepath.Join(n.dir, "volumes", "data", imageFile) },
			reader: true,
		},
		"a shared PVC": {
			disk: func(n *node) vmspec.Disk { d := n.volume(t, "data", false, "x"); d.Shareable = true; return d },
			file: func(n *node) string { return filepath.Join(n.dir, "volumes", "data", imageFile) },
			free: true,
		},
		"a PVC below an overlay": {
			disk: func(n *node) vmspec.Disk {
				d := n.volume(t, "data", false, "x")
				d.Source = vmspec.SourceEphemeral
				return d
			},
			file: func(n *node) string { return filepath.Join(n.dir, "volumes", "data", imageFile) },
		},
		"a reader of a PVC below an overlay": {
			disk: func(n *node) vmspec.Disk {
				d := n.volume(t, "data", false, "x")
				d.Source = vmspec.SourceEphemeral
				return d
			},
			file:   func(n *node) string { return filepath.Join(n.dir, "volumes", "data", imageFile) },
			reader: true, free: true,
		},
		"an overlay": {
			disk: func(*node) vmspec.Disk {
				return vmspec.Disk{Name: "root", Source: vmspec.SourceImage, Mode: vmspec.ModeFile}
			},
			file: func(n *node) string { return filepath.Join(n.dir, "containers", "c1", "disk.qcow2") },
		},
	} {
		n := newNode(t)
		d := c.disk(n)
		r := n.container(t, "c1", d)
		if err := n.Maker.Create(t.Context(), r, noProgress); err != nil {
			t.Fatal(name, err)
		}
		other := witness.Holder{Process: witness.Process{PID: 77, UID: r.Domain.UID + 1, Domain: "default_lost_1"}, Writes: !c.reader}
		own := witness.Holder{Process: witness.Process{PID: 78, UID: r.Domain.UID}, Writes: true}
		for _, holders := range [][]witness.Holder{{own}, {own, other}} {
			n.seen.held[inode(t, c.file(n))] = holders
			refused := len(holders) > 1 && !c.free
			calls := map[string]func() error{
				"attach": func() error {
					files, err := n.Attachments.Attach(t.Context(), r)
					return errors.Join(err, closed(files))
				},
			}
			if d.Source == vmspec.SourcePVC {
				calls["create"] = func() error { return n.Maker.Create(t.Context(), r, noProgress) }
				calls["plug"] = func() error {
					_, f, err := n.Attachments.Plug(t.Context(), r, record.PluggedDisk{Disk: d})
					if f != nil {
						err = errors.Join(err, f.Close())
					}
					return err
				}
			}
			for call, do := range calls {
				err := do()
				if errors.Is(err, ErrInUse) != refused || !refused && err != nil ||
					refused && !strings.Contains(err.Error(), "process 77 of domain default_lost_1 has it open") {
					t.Errorf("%s, %s, held by %v: %v", name, call, holders, err)
				}
				if err := n.Attachments.Detach(t.Context(), r); err != nil {
					t.Error(err)
				}
			}
		}
	}
}

func closed(files map[string][]*os.File) error {
	var errs []error
	for _, group := range files {
		for _, f := range group {
			errs = append(errs, f.Close())
		}
	}
	return errors.Join(errs...)
}

// TestNetworkDiskOfAnUnknownGuest: a target's LUN or an RBD image that a QEMU without a usable record has open is in
// use. A command line of a VM that the shim manages is not read: its reservations say what it uses.
func TestNetworkDiskOfAnUnknownGuest(t *testing.T) {
	lun := witness.RemoteDisk{Target: "iqn.2026-11.com.example:disk", LUN: 1}
	image := witness.RemoteDisk{Pool: "vms", Image: "disk", Monitors: []witness.RemoteServer{{Host: "10.0.0.7", Port: "3300"}, {Host: "10.0.0.4", Port: "3300"}}}
	otherLUN, otherCluster := lun, image
	otherLUN.LUN = 2
	otherCluster.Monitors = []witness.RemoteServer{{Host: "10.0.0.8", Port: "3300"}}
	reads := lun
	reads.ReadOnly = true
	for name, c := range map[string]struct {
		disk    func(*testing.T) vmspec.Disk
		change  func(*vmspec.Disk)
		has     witness.RemoteDisk
		managed bool
		refused bool
	}{
		"the LUN":                          {disk: iscsiDisk, has: lun, refused: true},
		"the LUN, to read":                 {disk: iscsiDisk, has: reads, refused: true},
		"the LUN, both to read":            {disk: iscsiDisk, has: reads, change: func(d *vmspec.Disk) { d.ReadOnly = true }},
		"the LUN, shared":                  {disk: iscsiDisk, has: lun, change: func(d *vmspec.Disk) { d.Shareable = true }},
		"another LUN":                      {disk: iscsiDisk, has: otherLUN},
		"an RBD image":                     {disk: rbdDisk, has: image, refused: true},
		"an RBD image of another cluster":  {disk: rbdDisk, has: otherCluster},
		"a LUN that a known guest forges":  {disk: iscsiDisk, has: lun, managed: true},
		"an import of the target":          {disk: importDisk, has: lun, refused: true},
		"an import of the target, another": {disk: importDisk, has: otherLUN},
	} {
		n := newNode(t)
		i := theImport("data")
		i.Target, i.LUN = lun.Target, lun.LUN
		if err := n.Imports.Add(i); err != nil {
			t.Fatal(err)
		}
		d := c.disk(t)
		if c.change != nil {
			c.change(&d)
		}
		r := n.container(t, "c1", d)
		lost := witness.Process{PID: 77, UID: r.Domain.UID + 1, Domain: "default_lost_1", Container: "lost", Remote: []witness.RemoteDisk{c.has}}
		own := witness.Process{PID: 78, UID: r.Domain.UID, Remote: []witness.RemoteDisk{lun, image}}
		n.seen.remotes = []witness.Process{own, lost}
		if c.managed {
			if err := n.Maker.Recover(record.Container{ID: "lost", State: record.Running}); err != nil {
				t.Fatal(err)
			}
		}
		for call, do := range map[string]func() error{
			"create": func() error { return n.Maker.Create(t.Context(), r, noProgress) },
			"attach": func() error { _, err := n.Attachments.Attach(t.Context(), r); return err },
		} {
			err := do()
			if errors.Is(err, ErrInUse) != c.refused || !c.refused && err != nil ||
				c.refused && !strings.Contains(err.Error(), "process 77 of domain default_lost_1, container lost has it open") {
				t.Errorf("%s, %s: %v", name, call, err)
			}
			if err := n.Attachments.Detach(t.Context(), r); err != nil {
				t.Error(err)
			}
		}
	}
}

func importDisk(*testing.T) vmspec.Disk {
	return vmspec.Disk{Name: "i", Source: vmspec.SourceImport, Import: "data"}
}

// TestOneLookACall: the disks of a call share one look at the node's processes.
func TestOneLookACall(t *testing.T) {
	n := newNode(t)
	r := n.container(t, "c1", n.volume(t, "a", true, "x"), n.volume(t, "b", true, "x"), n.volume(t, "c", false, "x"), iscsiDisk(t))
	if err := n.Maker.Create(t.Context(), r, noProgress); err != nil || n.seen.looks != 1 {
		t.Errorf("%d looks of create, %v", n.seen.looks, err)
	}
	files, err := n.Attachments.Attach(t.Context(), r)
	if err := errors.Join(err, closed(files)); err != nil || n.seen.looks != 2 {
		t.Errorf("%d looks with the start, %v", n.seen.looks, err)
	}
}
