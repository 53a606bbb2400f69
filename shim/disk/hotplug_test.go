package disk

import (
	"errors"
	"fmt"
	"io"
	"testing"

	"gotest.tools/v3/assert"

	"github.com/nodevirt/nodevirt/shim/record"
	"github.com/nodevirt/nodevirt/shim/vmspec"
)

// TestPlug: a running VM gets a volume as one that starts does, and others get it when it is released.
func TestPlug(t *testing.T) {
	n := newNode(t)
	for _, block := range []bool{true, false} {
		d := n.volume(t, fmt.Sprint("data-", block), block, "content")
		d.Bus, d.Target = vmspec.BusSCSI, "sda"
		first, second := n.container(t, "c1"), n.container(t, "c2", d)
		one := record.PluggedDisk{State: record.Attaching, Disk: d, Set: 3}
		first = first.WithPlugged(one)
		described, f, err := n.Attachments.Plug(t.Context(), first, one)
		assert.NilError(t, err)
		text, err := io.ReadAll(f)
		assert.NilError(t, err)
		assert.Equal(t, string(text), "content")
		assert.NilError(t, f.Close())
		assert.Equal(t, described.Set, 3)
		assert.Equal(t, described.Layer.Block, block)
		assert.Equal(t, described.Layer.Format, "raw")

		if !block {
			continue // QEMU locks the file
		}
		if _, err := n.Attachments.Attach(t.Context(), second); !errors.Is(err, ErrInUse) {
			t.Errorf("a second VM: %v", err)
		}
		assert.NilError(t, n.Attachments.Unplug(t.Context(), first, d))
		assert.NilError(t, n.Maker.Recover(first), "of a VM that may not run")
		_, _, err = n.Attachments.Plug(t.Context(), second, record.PluggedDisk{Disk: d})
		assert.NilError(t, err)
		assert.NilError(t, n.Attachments.Detach(t.Context(), second))

		// A new shim finds the device in use again, and the VM's end releases it.
		first.State = record.Running
		assert.NilError(t, n.Maker.Recover(first))
		if _, _, err := n.Attachments.Plug(t.Context(), second, record.PluggedDisk{Disk: d}); !errors.Is(err, ErrInUse) {
			t.Errorf("after a restart: %v", err)
		}
		assert.NilError(t, n.Attachments.Detach(t.Context(), first))
		_, _, err = n.Attachments.Plug(t.Context(), second, record.PluggedDisk{Disk: d})
		assert.NilError(t, err)
	}
}

// TestPlugImage: a running VM reads a registry disk, which is held until the VM has lost it or has ended.
func TestPlugImage(t *testing.T) {
	n := newNode(t)
	d := vmspec.Disk{
		Name: "tools", Source: vmspec.SourceVolume, Image: "cd", Mode: vmspec.ModeFile, ReadOnly: true, Bus: vmspec.BusSCSI, Target: "sda",
	}
	plug := func(id string) record.Container {
		r := n.container(t, id)
		one := record.PluggedDisk{State: record.Attaching, Disk: d}
		content, err := n.Attachments.Acquire(t.Context(), r, d)
		assert.NilError(t, err)
		one.Content = content
		described, f, err := n.Attachments.Plug(t.Context(), r, one)
		assert.NilError(t, err)
		assert.NilError(t, f.Close())
		assert.Equal(t, described.Layer.Path, content.Image.Path)
		assert.Assert(t, described.Layer.ReadOnly)
		assert.Equal(t, n.images.held[id+".tools"], "cd")
		return r.WithPlugged(one)
	}
	first, second := plug("c1"), plug("c2")
	whole := first.AsStarted() // as the target of a migration starts it
	files, err := n.Attachments.Attach(t.Context(), whole)
	assert.NilError(t, err)
	assert.Equal(t, len(files["tools-base"]), 1)
	assert.NilError(t, files["tools-base"][0].Close())
	assert.NilError(t, n.Attachments.Unplug(t.Context(), first, d))
	assert.NilError(t, n.Attachments.Detach(t.Context(), second))
	for _, id := range []string{"c1", "c2"} {
		assert.Equal(t, n.images.held[id+".tools"], "")
		assert.Equal(t, n.images.held[id], "guest")
	}
	d.Image = "none"
	_, err = n.Attachments.Acquire(t.Context(), first, d)
	assert.ErrorContains(t, err, `find disk "tools"`)
}

func TestPlugRefuses(t *testing.T) {
	n := newNode(t)
	r := n.container(t, "c1")
	for want, d := range map[error]vmspec.Disk{
		ErrVolume: {Name: "e", Source: vmspec.SourceEmpty},
		errNoFile: n.volume(t, "none", false, ""),
	} {
		if _, _, err := n.Attachments.Plug(t.Context(), r, record.PluggedDisk{Disk: d}); !errors.Is(err, want) {
			t.Errorf("%s: %v; want %v", d.Name, err, want)
		}
	}
}

// TestPlugMakesDisk: a file system that was just provisioned gets a disk, which grows with it. One with a disk of
// its owner's keeps it.
func TestPlugMakesDisk(t *testing.T) {
	n := newNode(t)
	r := n.container(t, "c1")
	size := func(d vmspec.Disk, wanted int64) int64 {
		d.Size = wanted
		_, f, err := n.Attachments.Plug(t.Context(), r, record.PluggedDisk{Disk: d})
		assert.NilError(t, err)
		defer f.Close()
		info, err := f.Stat()
		assert.NilError(t, err)
		return info.Size()
	}
	fresh, own := n.volume(t, "none", false, ""), n.volume(t, "own", false, "content")
	assert.Equal(t, size(fresh, 2<<20), int64(2<<20))
	assert.Equal(t, size(fresh, 3<<20), int64(3<<20))
	assert.Equal(t, size(own, 2<<20), int64(len("content")))
}
