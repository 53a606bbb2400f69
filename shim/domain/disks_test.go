package domain

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"gotest.tools/v3/assert"

	"github.com/nodevirt/nodevirt/shim/vmspec"
)

// TestManyDisks: a VM starts with as many disks as a manifest may have, on each bus.
func TestManyDisks(t *testing.T) {
	startLibvirtd(t)
	d := startDriver(t)
	for _, bus := range []vmspec.Bus{vmspec.BusVirtio, vmspec.BusSCSI, vmspec.BusSATA} {
		g := newGuest(t)
		more := g.Spec.Disks[:1]
		for i := range vmspec.MaxDisks - 1 {
			name := fmt.Sprintf("more-%d", i)
			path := filepath.Join(filepath.Dir(g.Disks[0].Layers[0].Path), name)
			assert.NilError(t, os.WriteFile(path, nil, 0o600))
			assert.NilError(t, os.Truncate(path, 1<<20))
			file, err := os.OpenFile(path, os.O_RDWR, 0)
			assert.NilError(t, err)
			t.Cleanup(func() { _ = file.Close() })
			more = append(more, vmspec.Disk{Name: name, Bus: bus})
			g.Disks = append(g.Disks, Disk{Layers: []Layer{{Path: path, Format: "raw", FDGroup: name}}})
			g.files[name] = []*os.File{file}
		}
		for i, target := range vmspec.Targets(more) {
			more[i].Target = target
		}
		g.Spec.Disks = more
		define(t, d, g)
		_, err := d.Lifecycle.Start(t.Context(), g.UUID, g.files)
		assert.NilError(t, err, bus)
		assert.NilError(t, d.Lifecycle.Destroy(t.Context(), g.UUID))
	}
}
