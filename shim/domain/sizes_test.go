package domain

import (
	"errors"
	"strings"
	"testing"

	"gotest.tools/v3/assert"
	"libvirt.org/go/libvirt"
)

// TestSizes: a running QEMU gets vCPUs and RAM, a restarted libvirtd knows them, and a guest that
// resets keeps them.
func TestSizes(t *testing.T) {
	l := startLibvirtd(t)
	d := startDriver(t)
	g := newGuest(t)
	ram := g.Spec.Memory
	g.Spec.CPU.MaxSockets, g.Spec.MaxMemory, g.Spec.Balloon = 3, ram+512*mib, true
	define(t, d, g)
	ctx := t.Context()
	if _, err := d.Sizes.Size(ctx, g.UUID); !errors.Is(err, ErrNotRunning) {
		t.Errorf("size of a domain that is shut off: %v", err)
	}
	_, err := d.Lifecycle.Start(ctx, g.UUID, g.files)
	assert.NilError(t, err)
	want := func(vcpus uint32, ram, guest int64) {
		t.Helper()
		size, err := d.Sizes.Size(ctx, g.UUID)
		assert.NilError(t, err)
		assert.DeepEqual(t, size, Size{VCPUs: vcpus, RAM: ram})
		has, err := d.Balloon.Memory(ctx, g.UUID)
		assert.NilError(t, err)
		assert.Equal(t, has, guest)
	}
	want(1, ram, ram)
	for range 2 {
		assert.NilError(t, d.Sizes.AddVCPUs(ctx, g.UUID, 2))
		assert.NilError(t, d.Sizes.AddRAM(ctx, g.UUID, ram+128*mib))
		assert.NilError(t, d.Balloon.SetMemory(ctx, g.UUID, ram+128*mib))
		want(2, ram+128*mib, ram+128*mib)
	}
	assert.NilError(t, d.Lifecycle.Resume(ctx, g.UUID))
	assert.NilError(t, d.Lifecycle.Reset(ctx, g.UUID))
	want(2, ram+128*mib, ram+128*mib)

	l.kill(t)
	l.start(t)
	events, unsubscribe := d.Connection.Subscribe()
	defer unsubscribe()
	eventually(t, events, "of a new connection", func(e Event) bool { return e.Kind == EventResync })
	want(2, ram+128*mib, ram+128*mib)
	assert.NilError(t, d.Sizes.AddVCPUs(ctx, g.UUID, 3))
	assert.NilError(t, d.Sizes.AddRAM(ctx, g.UUID, ram+512*mib))
	size, err := d.Sizes.Size(ctx, g.UUID)
	assert.NilError(t, err)
	assert.DeepEqual(t, size, Size{VCPUs: 3, RAM: ram + 512*mib})
	assert.NilError(t, d.Sizes.AddVCPUs(ctx, g.UUID, 1), "fewer than there are")
	assert.NilError(t, d.Sizes.AddRAM(ctx, g.UUID, ram), "less than there is")
	if err := d.Sizes.AddVCPUs(ctx, g.UUID, 4); err == nil || !strings.Contains(err.Error(), "add vCPUs to") {
		t.Errorf("more vCPUs than the maximum: %v", err)
	}
	if err := d.Sizes.AddRAM(ctx, g.UUID, ram+640*mib); err == nil || !strings.Contains(err.Error(), "add RAM to") {
		t.Errorf("more RAM than the maximum: %v", err)
	}
	text, err := onDomain(ctx, d.Connection, "describe", g.UUID, func(dom *libvirt.Domain) (string, error) { return dom.GetXMLDesc(0) })
	assert.NilError(t, err)
	t.Log(text)
}
