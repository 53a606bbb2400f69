package domain

import (
	"errors"
	"strings"
	"testing"

	"gotest.tools/v3/assert"
	"libvirt.org/go/libvirt"

	"github.com/nodevirt/nodevirt/shim/migrate/compat"
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
	if err := d.Sizes.AddRAM(ctx, g.UUID, ram+768*mib); err == nil || !strings.Contains(err.Error(), "add RAM to") {
		t.Errorf("more RAM than the maximum: %v", err)
	}
	text, err := onDomain(ctx, d.Connection, "describe", g.UUID, func(dom *libvirt.Domain) (string, error) { return dom.GetXMLDesc(0) })
	assert.NilError(t, err)

	// The target of a migration, whose spec has by then what the guest has, can have the same.
	target := newGuest(t)
	target.Spec.CPU.Sockets, target.Spec.CPU.MaxSockets = 3, 3
	target.Spec.Memory, target.Spec.MaxMemory = ram+512*mib, ram+512*mib
	own, err := XML(target.Description)
	assert.NilError(t, err)
	data, err := compat.Encode(text)
	assert.NilError(t, err)
	shape, err := compat.Decode(data)
	assert.NilError(t, err)
	shape.Addresses = nil // of devices: they have a test
	own, err = compat.Apply(own, shape)
	assert.NilError(t, err)
	assert.NilError(t, d.Lifecycle.Define(ctx, own))
	_, err = d.Lifecycle.Start(ctx, target.UUID, target.files)
	assert.NilError(t, err)
	size, err = d.Sizes.Size(ctx, target.UUID)
	assert.NilError(t, err)
	assert.DeepEqual(t, size, Size{VCPUs: 3, RAM: ram + 512*mib})
	there, err := onDomain(ctx, d.Connection, "describe", target.UUID, func(dom *libvirt.Domain) (string, error) { return dom.GetXMLDesc(0) })
	assert.NilError(t, err)
	for _, part := range []string{"vcpus", "maxMemory", "memory model='dimm'"} {
		assert.Equal(t, element(there, part), element(text, part))
	}

	// So can a VM that boots with its maximum.
	full := newGuest(t)
	full.Spec.CPU.MaxSockets, full.Spec.MaxMemory = 1, ram
	define(t, d, full)
	_, err = d.Lifecycle.Start(ctx, full.UUID, full.files)
	assert.NilError(t, err)
}

// element returns the first element of a name in XML, from its name to its end.
func element(text, name string) string {
	_, rest, _ := strings.Cut(text, "<"+name)
	rest, _, _ = strings.Cut(rest, "</"+strings.Fields(name)[0]+">")
	return rest
}
