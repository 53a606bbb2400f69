package domain

import (
	"testing"

	"gotest.tools/v3/assert"
	"libvirt.org/go/libvirt"
)

// TestMigratesLive: a guest runs while it is copied, unless it is emulated by a QEMU before 9.0.
func TestMigratesLive(t *testing.T) {
	startLibvirtd(t)
	d := startDriver(t)
	g := newGuest(t)
	define(t, d, g)
	_, err := d.Lifecycle.Start(t.Context(), g.UUID, g.files)
	assert.NilError(t, err)
	live, err := d.Observer.MigratesLive(t.Context(), g.UUID)
	assert.NilError(t, err)
	want, err := onDomain(t.Context(), d.Connection, "ask", g.UUID, func(dom *libvirt.Domain) (bool, error) {
		version, err := query[struct {
			QEMU struct {
				Major int `json:"major"`
			} `json:"qemu"`
		}](dom, "query-version", nil)
		if err != nil {
			return false, err
		}
		kind, err := query[struct {
			Enabled bool `json:"enabled"`
		}](dom, "query-kvm", nil)
		return kind.Enabled || version.QEMU.Major >= 9, err
	})
	assert.NilError(t, err)
	assert.Equal(t, live, want)
}
