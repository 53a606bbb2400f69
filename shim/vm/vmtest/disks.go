package vmtest

import (
	"context"
	"fmt"
	"maps"
	"os"
	"sync"

	"github.com/nodevirt/nodevirt/imageunpack"
	"github.com/nodevirt/nodevirt/imageunpack/expand"
	"github.com/nodevirt/nodevirt/shim/domain"
	"github.com/nodevirt/nodevirt/shim/record"
	"github.com/nodevirt/nodevirt/shim/vmspec"
)

// Disks is a fake of package disk's Disks. A disk is one line in a table.
type Disks struct {
	script *Script
	images *Images
	// Slow is set for disks that take time. Progress are the states that Create
	// reports for the disk "disk".
	Slow     bool
	Progress []expand.Progress
	// Converts, if not nil, is called while disks are made, as their conversion calls Groups.
	Converts func(r record.Container) error
	// CD is set for images that are CDs.
	CD bool

	// Files are the files that take guests' writes, by the disks' names.
	Files map[string]string

	mu       sync.Mutex
	made     map[string]bool
	attached map[string]bool
	devices  map[string][]vmspec.TaggedDevice
	restore  chan string // what Watch reports
}

// NewDisks returns a node without disks of VMs. images holds what they are made of.
func NewDisks(s *Script, images *Images) *Disks {
	return &Disks{script: s, images: images, made: map[string]bool{}, attached: map[string]bool{}, devices: map[string][]vmspec.TaggedDevice{}, restore: make(chan string)}
}

// Acquire implements disk's.
func (d *Disks) Acquire(ctx context.Context, id, _ string, disks []vmspec.Disk, own *imageunpack.Disk) (map[string]record.Disk, error) {
	if err := d.script.enter(ctx, "Disks.Acquire"); err != nil {
		return nil, err
	}
	all := map[string]record.Disk{}
	for _, one := range disks {
		var image imageunpack.Disk
		if own != nil {
			image = *own
		}
		image.CD = d.CD
		switch one.Source {
		case vmspec.SourceImage:
			all[one.Name] = record.Disk{Image: &image}
		case vmspec.SourceVolume:
			image.Owner = id + "." + one.Name
			d.images.hold(image.Owner)
			all[one.Name] = record.Disk{Image: &image}
		}
	}
	return all, nil
}

// TakeTime implements disk's.
func (d *Disks) TakeTime(record.Container) bool { return d.Slow }

// Create implements disk's.
func (d *Disks) Create(ctx context.Context, r record.Container, progress func(string, expand.Progress)) error {
	d.set(d.made, r.ID, true) // what fails may be half made
	for _, p := range d.Progress {
		progress("disk", p)
	}
	if d.Converts != nil {
		if err := d.Converts(r); err != nil {
			return err
		}
	}
	return d.script.enter(ctx, "Disks.Create")
}

// Recover implements disk's.
func (d *Disks) Recover(record.Container) error { return d.script.note("Disks.Recover") }

// Remove implements disk's.
func (d *Disks) Remove(ctx context.Context, r record.Container) error {
	if err := d.script.enter(ctx, "Disks.Remove"); err != nil {
		return err
	}
	d.set(d.made, r.ID, false)
	return nil
}

// Release implements disk's.
func (d *Disks) Release(ctx context.Context, id string, disks []vmspec.Disk) error {
	if err := d.script.enter(ctx, "Disks.Release"); err != nil {
		return err
	}
	for _, one := range disks {
		if one.Source == vmspec.SourceVolume {
			d.images.drop(id + "." + one.Name)
		}
	}
	d.images.drop(id)
	return nil
}

// RemoveNodes implements disk's.
func (d *Disks) RemoveNodes(id string) error {
	if err := d.script.note("Disks.RemoveNodes"); err != nil {
		return err
	}
	d.set(d.attached, id, false)
	return nil
}

// Attach implements disk's.
func (d *Disks) Attach(ctx context.Context, r record.Container) (map[string][]*os.File, error) {
	d.set(d.attached, r.ID, true)
	if err := d.script.enter(ctx, "Disks.Attach"); err != nil {
		return nil, err
	}
	f, err := os.Open(os.DevNull)
	return map[string][]*os.File{"disk-0": {f}}, err
}

// WriteDevices implements disk's.
func (d *Disks) WriteDevices(r record.Container, devices []vmspec.TaggedDevice) error {
	if err := d.script.note("Disks.WriteDevices"); err != nil {
		return err
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	d.devices[r.ID] = devices
	return nil
}

// Devices returns the devices with tags on a container's config drive.
func (d *Disks) Devices(id string) []vmspec.TaggedDevice {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.devices[id]
}

// Detach implements disk's.
func (d *Disks) Detach(ctx context.Context, r record.Container) error {
	if err := d.script.enter(ctx, "Disks.Detach"); err != nil {
		return err
	}
	d.set(d.attached, r.ID, false)
	return nil
}

// Describe implements disk's.
func (d *Disks) Describe(r record.Container) []domain.Disk {
	var all []domain.Disk
	for _, one := range r.Spec.Disks {
		all = append(all, domain.Disk{Layers: []domain.Layer{
			{Format: "qcow2", Path: fmt.Sprintf("/disks/%s/%s", r.ID, one.Name), FDGroup: one.Name + "-0"},
		}})
	}
	return all
}

// Written implements disk's.
func (d *Disks) Written(record.Container) map[string]string { return maps.Clone(d.Files) }

func (d *Disks) set(in map[string]bool, id string, to bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if to {
		in[id] = true
		return
	}
	delete(in, id)
}

// Left returns the disks that are made or attached.
func (d *Disks) Left() []string {
	d.mu.Lock()
	defer d.mu.Unlock()
	var all []string
	for id := range d.made {
		all = append(all, "disks of "+id)
	}
	for id := range d.attached {
		all = append(all, "attached disks of "+id)
	}
	return all
}
