package domain

import (
	"slices"
	"testing"

	"gotest.tools/v3/assert"
	"libvirt.org/go/libvirt"
)

// TestMigratesLive: a guest runs while it is copied, unless it is emulated by a QEMU before 9.0.
func TestMigratesLive(t *testing.T) {
	d, g := startGuest(t)
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

// TestDropCopies: the nodes that a copy of disks left are removed, with those above them first, and no others.
func TestDropCopies(t *testing.T) {
	d, g := startGuest(t)
	nodes := func() (names []string) {
		_, err := onDomain(t.Context(), d.Connection, "list", g.UUID, func(dom *libvirt.Domain) (string, error) {
			all, err := query[[]struct {
				Name string `json:"node-name"`
			}](dom, "query-named-block-nodes", nil)
			for _, n := range all {
				names = append(names, n.Name)
			}
			return "", err
		})
		assert.NilError(t, err)
		slices.Sort(names)
		return names
	}
	before := nodes()
	for range 2 { // the second time as a copy that begins again
		assert.NilError(t, do(t.Context(), d.Connection, "copy", g.UUID, func(dom *libvirt.Domain) error {
			for _, disk := range []string{"vda", "vdb"} {
				storage, format := "migration-"+disk+"-storage", "migration-"+disk+"-format"
				if _, err := command(dom, "blockdev-add", map[string]any{"driver": "null-co", "node-name": storage, "read-zeroes": true}); err != nil {
					return err
				}
				if _, err := command(dom, "blockdev-add", map[string]any{"driver": "raw", "node-name": format, "file": storage}); err != nil {
					return err
				}
			}
			return nil
		}))
		assert.NilError(t, d.Lifecycle.DropCopies(t.Context(), g.UUID))
	}
	assert.DeepEqual(t, nodes(), before)
}
