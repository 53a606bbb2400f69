package domain

import (
	"os"
	"strings"
	"testing"

	"gotest.tools/v3/assert"
	"libvirt.org/go/libvirt"

	"github.com/nodevirt/nodevirt/test/wait"
)

// TestPrepareMirrors: QEMU copies a disk that the guest has got, and has it as before when the copy ends.
func TestPrepareMirrors(t *testing.T) {
	startLibvirtd(t)
	d := startDriver(t)
	g := newGuest(t)
	define(t, d, g)
	_, err := d.Lifecycle.Start(t.Context(), g.UUID, g.files)
	assert.NilError(t, err)
	assert.NilError(t, d.Lifecycle.Resume(t.Context(), g.UUID))
	disk, file := plugged(t, "sda", 0)
	assert.NilError(t, d.Hotplug.Attach(t.Context(), g.UUID, disk, file))
	for range 2 { // the first migration may fail
		assert.NilError(t, d.Lifecycle.PrepareMirrors(t.Context(), g.UUID, []string{"sda", "vdz"}))
		m := &monitor{t: t, d: d, uuid: g.UUID}
		m.mirror("sda")
	}
	size := int64(3 << 20)
	assert.NilError(t, d.Hotplug.Grow(t.Context(), g.UUID, Growth{Target: "sda", Set: new(0), Size: size}, openFile(t, disk.Layer.Path, os.O_RDONLY)))
	info, err := os.Stat(disk.Layer.Path)
	assert.NilError(t, err)
	assert.Equal(t, info.Size(), size)
	assert.NilError(t, d.Hotplug.Request(t.Context(), g.UUID, "sda"))
	assert.NilError(t, d.Hotplug.Release(t.Context(), g.UUID, 0))
}

// monitor gives commands to a domain's QEMU.
type monitor struct {
	t    *testing.T
	d    *Driver
	uuid string
}

func (m *monitor) run(name string, arguments map[string]any) []map[string]any {
	m.t.Helper()
	all, err := onDomain(m.t.Context(), m.d.Connection, name, m.uuid, func(dom *libvirt.Domain) (any, error) {
		return query[any](dom, name, arguments)
	})
	assert.NilError(m.t, err)
	var list []map[string]any
	values, _ := all.([]any)
	for _, v := range values {
		list = append(list, v.(map[string]any))
	}
	return list
}

// mirror copies a disk to nowhere.
func (m *monitor) mirror(target string) {
	const nowhere = "nowhere"
	var device any
	for _, d := range m.run("query-block", nil) {
		if inserted, has := d["inserted"].(map[string]any); has && strings.HasSuffix(d["qdev"].(string), target) {
			device = inserted["node-name"]
		}
	}
	m.run("blockdev-add", map[string]any{"driver": "null-co", "node-name": nowhere, "size": 1 << 20})
	m.run("blockdev-mirror", map[string]any{"job-id": nowhere, "device": device, "target": nowhere, "sync": "full"})
	wait.Until(m.t, "the disk is copied", func() bool {
		jobs := m.run("query-block-jobs", nil)
		return len(jobs) == 1 && jobs[0]["ready"] == true
	})
	m.run("block-job-cancel", map[string]any{"device": nowhere})
	wait.Until(m.t, "the copy ends", func() bool { return len(m.run("query-block-jobs", nil)) == 0 })
	m.run("blockdev-del", map[string]any{"node-name": nowhere})
}
