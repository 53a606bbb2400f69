package domain

import (
	"os"
	"path/filepath"
	"testing"

	"gotest.tools/v3/assert"
	"libvirt.org/go/libvirt"

	"github.com/nodevirt/nodevirt/shim/vmspec"
	"github.com/nodevirt/nodevirt/test/loopfs"
)

// TestGrow: a disk gets the size of its file or device, and keeps it.
func TestGrow(t *testing.T) {
	startLibvirtd(t)
	d := startDriver(t)
	g := newGuest(t)
	started := filepath.Join(t.TempDir(), "disk.img")
	assert.NilError(t, os.WriteFile(started, make([]byte, 1<<20), 0o600))
	g.Spec.Disks = append(g.Spec.Disks, vmspec.Disk{Name: "started", Bus: vmspec.BusSCSI, Target: "sdb"})
	g.Disks = append(g.Disks, Disk{Layers: []Layer{{Format: "raw", Path: started, FDGroup: "started"}}})
	g.files["started"] = []*os.File{openFile(t, started, os.O_RDWR)}
	define(t, d, g)
	pid, err := d.Lifecycle.Start(t.Context(), g.UUID, g.files)
	assert.NilError(t, err)
	assert.NilError(t, d.Lifecycle.Resume(t.Context(), g.UUID))
	grow := func(target string, set *int, path string, size int64) error {
		t.Helper()
		return d.Hotplug.Grow(t.Context(), g.UUID, Growth{Target: target, Set: set, Size: size}, openFile(t, path, os.O_RDONLY))
	}
	sizeOf := func(target string) uint64 {
		t.Helper()
		size, err := onDomain(t.Context(), d.Connection, "measure", g.UUID, func(dom *libvirt.Domain) (uint64, error) {
			return d.Hotplug.capacity(dom, target)
		})
		assert.NilError(t, err)
		return size
	}

	inFile, file := plugged(t, "sda", 0)
	assert.NilError(t, d.Hotplug.Attach(t.Context(), g.UUID, inFile, file))
	for target, path := range map[string]string{"sda": inFile.Layer.Path, "sdb": started} {
		var set *int
		if target == "sda" {
			set = new(0)
		}
		for _, step := range []struct{ to, want int64 }{{3 << 20, 3 << 20}, {2 << 20, 3 << 20}, {4 << 20, 4 << 20}} {
			assert.NilError(t, grow(target, set, path, step.to))
			assert.Equal(t, sizeOf(target), uint64(step.want))
			info, err := os.Stat(path)
			assert.NilError(t, err)
			assert.Equal(t, info.Size(), step.want)
		}
	}

	path := loopfs.Device(t, 1<<20)
	onDevice := PluggedDisk{Spec: vmspec.Disk{Name: "device", Bus: vmspec.BusVirtio, Target: "vdb"}, Layer: Layer{Format: "raw", Path: path, Block: true}, Set: 1}
	assert.NilError(t, d.Hotplug.Attach(t.Context(), g.UUID, onDevice, openFile(t, path, os.O_RDWR)))
	loopfs.Grow(t, path, 2<<20)
	for range 2 {
		assert.NilError(t, grow("vdb", new(1), path, 2<<20))
		assert.Equal(t, sizeOf("vdb"), uint64(2<<20))
	}
	if err := grow("vdb", new(1), path, 4<<20); err == nil {
		t.Error("a disk is larger than its device")
	}
	if err := grow("vdz", nil, path, 4<<20); err == nil {
		t.Error("a disk that is not there grows")
	}
	assert.NilError(t, d.Hotplug.Request(t.Context(), g.UUID, "sda"))
	assert.NilError(t, d.Hotplug.Release(t.Context(), g.UUID, 0))
	assert.Equal(t, opened(t, pid, inFile.Layer.Path), 0)
}
