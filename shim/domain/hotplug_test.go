package domain

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
	"gotest.tools/v3/assert"
	"libvirt.org/go/libvirt"

	"github.com/nodevirt/nodevirt/shim/vmspec"
	"github.com/nodevirt/nodevirt/test/loopfs"
)

// plugged makes a disk whose file QEMU's user cannot open.
func plugged(t *testing.T, target string, set int) (PluggedDisk, *os.File) {
	t.Helper()
	path := filepath.Join(t.TempDir(), "disk.img")
	assert.NilError(t, os.WriteFile(path, make([]byte, 1<<20), 0o600))
	return PluggedDisk{
		Spec:  vmspec.Disk{Name: "hot-" + target, Bus: vmspec.BusSCSI, Target: target, Serial: "hot-" + target},
		Layer: Layer{Format: "raw", Path: path}, Set: set,
	}, openFile(t, path, unix.O_RDWR)
}

// opened returns how often a process has a file open.
func opened(t *testing.T, pid int, path string) int {
	t.Helper()
	entries, err := os.ReadDir(fmt.Sprintf("/proc/%d/fd", pid))
	assert.NilError(t, err)
	n := 0
	for _, e := range entries {
		if to, _ := os.Readlink(fmt.Sprintf("/proc/%d/fd/%s", pid, e.Name())); to == path {
			n++
		}
	}
	return n
}

// TestPorts: a running QEMU gets as many disks on virtio as a VM has free ports.
func TestPorts(t *testing.T) {
	d, g := startGuest(t)
	attach := func(n int, bus vmspec.Bus, target string) error {
		one, file := plugged(t, target, n)
		one.Spec.Bus = bus
		return d.Hotplug.Attach(t.Context(), g.UUID, one, file)
	}
	for n := range freePorts {
		assert.NilError(t, attach(n, vmspec.BusVirtio, fmt.Sprintf("vd%c", 'b'+n)))
	}
	assert.NilError(t, attach(30, vmspec.BusSCSI, "sda"))
	var err error
	for n := freePorts; err == nil && n < 20; n++ {
		err = attach(n, vmspec.BusVirtio, fmt.Sprintf("vd%c", 'b'+n))
	}
	if !errors.Is(err, ErrNoPort) {
		t.Errorf("without a free port: %v", err)
	}
	assert.NilError(t, attach(31, vmspec.BusSCSI, "sdb"))
}

// TestMedium: a drive without a medium gets one, loses it, and gets another, whose format may differ.
func TestMedium(t *testing.T) {
	l := startLibvirtd(t)
	d := startDriver(t)
	g := newGuest(t)
	g.Spec.Disks = append(g.Spec.Disks,
		vmspec.Disk{Name: "cd", Source: vmspec.SourceDrive, Bus: vmspec.BusSATA, Target: "sda", CDROM: true, ErrorPolicy: "stop"},
		vmspec.Disk{Name: "second", Source: vmspec.SourceDrive, Bus: vmspec.BusSCSI, Target: "sdb", CDROM: true})
	g.Disks = append(g.Disks, Disk{}, Disk{})
	define(t, d, g)
	pid, err := d.Lifecycle.Start(t.Context(), g.UUID, g.files)
	assert.NilError(t, err)
	assert.NilError(t, d.Lifecycle.Resume(t.Context(), g.UUID))
	for set, target := range []string{"sda", "sdb", "sda"} {
		medium, file := plugged(t, target, set)
		medium.Spec.CDROM, medium.Spec.ReadOnly, medium.Spec.Bus = true, true, vmspec.BusSATA
		size := int64(1 << 20)
		if set == 0 {
			medium.Layer.Format, size = "qcow2", 3<<20
			tool(t, "qemu-img", "create", "-q", "-f", "qcow2", medium.Layer.Path, strconv.FormatInt(size, 10))
		}
		assert.NilError(t, d.Hotplug.Attach(t.Context(), g.UUID, medium, file))
		if err := d.Hotplug.Attach(t.Context(), g.UUID, medium, file); !errors.Is(err, errNoDrive) {
			t.Errorf("a second medium: %v", err)
		}
		targets, err := d.Hotplug.Targets(t.Context(), g.UUID)
		assert.NilError(t, err)
		assert.DeepEqual(t, targets, map[string]bool{"vda": true, target: true})
		if opened(t, pid, medium.Layer.Path) == 0 {
			t.Error("QEMU does not have the medium open")
		}
		assert.NilError(t, do(t.Context(), d.Hotplug.conn, "look at", g.UUID, func(dom *libvirt.Domain) error {
			drives, err := drivesOf(dom)
			if seen := drives[target].size; seen != size {
				t.Errorf("the guest sees %d bytes, want %d", seen, size)
			}
			return err
		}))
		if set == 1 { // a restarted libvirtd finds the medium again
			l.kill(t)
			l.start(t)
			events, unsubscribe := d.Connection.Subscribe()
			eventually(t, events, "of a new connection", func(e Event) bool { return e.Kind == EventResync })
			unsubscribe()
		}
		for range 2 {
			assert.NilError(t, d.Hotplug.Request(t.Context(), g.UUID, target))
			assert.NilError(t, d.Hotplug.Release(t.Context(), g.UUID, set))
		}
		targets, err = d.Hotplug.Targets(t.Context(), g.UUID)
		assert.NilError(t, err)
		assert.DeepEqual(t, targets, map[string]bool{"vda": true})
		assert.Equal(t, opened(t, pid, medium.Layer.Path), 0)
	}
	medium, file := plugged(t, "sdc", 0)
	medium.Spec.CDROM = true
	if err := d.Hotplug.Attach(t.Context(), g.UUID, medium, file); !errors.Is(err, errNoDrive) {
		t.Errorf("no drive: %v", err)
	}
}

// TestHotplug: a running QEMU gets disks whose files it can't open by itself, and lets
// go of them. No guest is needed to release a SCSI disk.
func TestHotplug(t *testing.T) {
	l := startLibvirtd(t)
	d := startDriver(t)
	g := newGuest(t)
	scsi, file := plugged(t, "sda", 0)
	define(t, d, g)
	if err := d.Hotplug.Attach(t.Context(), g.UUID, scsi, file); !errors.Is(err, ErrNotRunning) {
		t.Errorf("attach to a domain that is shut off: %v", err)
	}
	pid, err := d.Lifecycle.Start(t.Context(), g.UUID, g.files)
	assert.NilError(t, err)
	assert.NilError(t, d.Hotplug.Attach(t.Context(), g.UUID, scsi, file))
	second, _ := plugged(t, "sdb", 1)
	device := loopfs.Device(t, 1<<20)
	second.Layer, second.Spec.Cache = Layer{Format: "raw", Path: device, Block: true}, "none"
	file2 := openFile(t, device, unix.O_RDWR|unix.O_DIRECT)
	assert.NilError(t, d.Hotplug.Attach(t.Context(), g.UUID, second, file2))
	targets, err := d.Hotplug.Targets(t.Context(), g.UUID)
	assert.NilError(t, err)
	assert.DeepEqual(t, targets, map[string]bool{"vda": true, "sda": true, "sdb": true})
	if n := opened(t, pid, scsi.Layer.Path); n == 0 {
		t.Error("QEMU does not have the disk open")
	}
	text, err := onDomain(t.Context(), d.Connection, "describe", g.UUID, func(dom *libvirt.Domain) (string, error) { return dom.GetXMLDesc(0) })
	assert.NilError(t, err)
	if n := opened(t, pid, device); n == 0 {
		t.Error("QEMU does not have the device open")
	}
	for _, one := range []string{"<serial>hot-sda</serial>", "model='virtio-scsi'", "<source dev='/dev/fdset/1048577'"} {
		if !strings.Contains(text, one) {
			t.Errorf("no %s in the domain:\n%s", one, text)
		}
	}

	// A restarted libvirtd finds them again.
	l.kill(t)
	l.start(t)
	events, unsubscribe := d.Connection.Subscribe()
	defer unsubscribe()
	eventually(t, events, "of a new connection", func(e Event) bool { return e.Kind == EventResync })
	assert.NilError(t, d.Hotplug.Request(t.Context(), g.UUID, "sda"))
	targets, err = d.Hotplug.Targets(t.Context(), g.UUID)
	assert.NilError(t, err)
	if targets["sda"] {
		t.Error("the disk is still attached")
	}
	// QEMU before 9.1 keeps the file until the guest runs.
	err = d.Hotplug.Release(t.Context(), g.UUID, 0)
	if kept := opened(t, pid, scsi.Layer.Path) > 0; kept != errors.Is(err, ErrPaused) || !kept && err != nil {
		t.Errorf("release while the guest is paused: %v; QEMU has the file: %v", err, kept)
	}
	assert.NilError(t, d.Lifecycle.Resume(t.Context(), g.UUID))
	for range 2 {
		assert.NilError(t, d.Hotplug.Release(t.Context(), g.UUID, 0))
	}
	assert.Equal(t, opened(t, pid, scsi.Layer.Path), 0)
	assert.NilError(t, d.Hotplug.Request(t.Context(), g.UUID, "sda"), "request what is released")
	// Its number, target and address are free.
	third, file3 := plugged(t, "sda", 0)
	third.Spec.ReadOnly = true
	assert.NilError(t, d.Hotplug.Attach(t.Context(), g.UUID, third, file3))
	err = d.Hotplug.Attach(t.Context(), g.UUID, third, file3)
	if err == nil || !strings.Contains(err.Error(), "target sda already exists") {
		t.Errorf("attach a disk twice: %v", err)
	}
}

// TestReleaseOfStart: QEMU also closes the file of a disk with which it started, and keeps those of others. So it is
// with a guest that came with its disks.
func TestReleaseOfStart(t *testing.T) {
	l := startLibvirtd(t)
	d := startDriver(t)
	g := newGuest(t)
	data, file := plugged(t, "sda", 0)
	data.Layer.FDGroup = "data-top"
	g.Spec.Disks, g.Disks = append(g.Spec.Disks, data.Spec), append(g.Disks, Disk{Layers: []Layer{data.Layer}})
	g.files[data.Layer.FDGroup] = []*os.File{file}
	define(t, d, g)
	pid, err := d.Lifecycle.Start(t.Context(), g.UUID, g.files)
	assert.NilError(t, err)
	others := func() (n int) {
		for _, files := range g.files {
			n += opened(t, pid, files[0].Name())
		}
		return n - opened(t, pid, file.Name())
	}
	before := others()
	assert.Assert(t, before > 0)
	assert.NilError(t, d.Lifecycle.Resume(t.Context(), g.UUID))
	assert.NilError(t, d.Hotplug.Release(t.Context(), g.UUID, 0))
	assert.Assert(t, opened(t, pid, file.Name()) > 0, "the disk is attached")
	l.kill(t)
	l.start(t)
	events, unsubscribe := d.Connection.Subscribe()
	defer unsubscribe()
	eventually(t, events, "of a new connection", func(e Event) bool { return e.Kind == EventResync })
	assert.NilError(t, d.Hotplug.Request(t.Context(), g.UUID, "sda"))
	for range 2 {
		assert.NilError(t, d.Hotplug.Release(t.Context(), g.UUID, 0))
	}
	assert.Equal(t, opened(t, pid, file.Name()), 0)
	assert.Equal(t, others(), before)
}

// TestUnused: only sets of FD groups whose nodes are gone are unused.
func TestUnused(t *testing.T) {
	nodes := map[string]bool{"libvirt-1-storage": true, "libvirt-2-format": true}
	for opaque, want := range map[string]bool{
		"libvirt-1-storage0": false, "libvirt-2-storage0": true, "libvirt-11-storage1": true, "serial0-log": false, forReading: false, "": false,
	} {
		assert.Equal(t, unused([]setFile{{FD: 3, Opaque: opaque}}, nodes), want, opaque)
	}
	assert.Assert(t, !unused(nil, nodes))
	assert.Assert(t, !unused([]setFile{{Opaque: "libvirt-2-storage0"}, {Opaque: forReading}}, nodes))
}
