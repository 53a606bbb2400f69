package domain

import (
	"context"
	"fmt"
	"path/filepath"
	"slices"
	"strconv"

	"libvirt.org/go/libvirt"
	"libvirt.org/go/libvirtxml"
)

// PrepareMirrors readies disks of a running domain to be copied while the guest writes, by their targets. The
// error is [ErrPaused] for a disk of [Hotplug] while the guest is paused, before QEMU 9.1.
//
// QEMU opens a disk of [Hotplug] by the descriptor for reading whenever none may write for a
// moment, as at the start of a copy, and then finds its own locks on the one for writing. A disk
// that stays open for writing needs no other.
func (l *Lifecycle) PrepareMirrors(ctx context.Context, uuid string, targets []string) error {
	return do(ctx, l.conn, "prepare the copy of disks of", uuid, func(dom *libvirt.Domain) error {
		disks, err := disksOf(dom)
		if err != nil {
			return err
		}
		for _, d := range disks {
			set, plugged := setOf(d)
			if d.Target == nil || !slices.Contains(targets, d.Target.Dev) || !plugged || d.ReadOnly != nil {
				continue
			}
			if err := stayWritable(dom, d, set); err != nil {
				return fmt.Errorf("disk %s: %w", d.Target.Dev, err)
			}
			if err := dropReader(dom, set); err != nil {
				return fmt.Errorf("disk %s: %w", d.Target.Dev, err)
			}
		}
		return nil
	})
}

// setOf returns the number of the set of a disk that a running domain got.
func setOf(d libvirtxml.DomainDisk) (int, bool) {
	path := ""
	switch {
	case d.Source == nil:
	case d.Source.File != nil:
		path = d.Source.File.File
	case d.Source.Block != nil:
		path = d.Source.Block.Dev
	}
	if filepath.Dir(path) != fdSets {
		return 0, false
	}
	set, err := strconv.Atoi(filepath.Base(path))
	return set, err == nil
}

// stayWritable opens the file of a disk with the options that libvirt gave it, but for the one by which QEMU
// chooses the descriptor for reading while the guest may not write.
func stayWritable(dom *libvirt.Domain, d libvirtxml.DomainDisk, set int) error {
	nodes, err := blockNodes(dom)
	if err != nil {
		return err
	}
	name := filepath.Join(fdSets, strconv.Itoa(set))
	at := slices.IndexFunc(nodes, func(n blockNode) bool {
		return n.File == name && (n.Driver == "file" || n.Driver == "host_device")
	})
	if at < 0 {
		return fmt.Errorf("QEMU has no file %s", name)
	}
	n := nodes[at]
	options := map[string]any{
		"driver": n.Driver, "node-name": n.Name, "filename": name, "discard": discardOf(d), "auto-read-only": false,
		"cache": map[string]bool{"direct": n.Cache.Direct, "no-flush": n.Cache.NoFlush},
	}
	if d.Driver != nil && d.Driver.IO != "" {
		options["aio"] = d.Driver.IO
	}
	_, err = command(dom, "blockdev-reopen", map[string]any{"options": []any{options}})
	return err
}

// discardOf returns what QEMU does with ranges that the guest frees.
func discardOf(d libvirtxml.DomainDisk) string {
	if d.Driver != nil && d.Driver.Discard != "" {
		return d.Driver.Discard
	}
	return "unmap"
}

// dropReader closes the descriptor for reading of a set: QEMU has opened the disk by it first, and leaves
// locks on it.
func dropReader(dom *libvirt.Domain, set int) error {
	sets, err := setsOf(dom)
	if err != nil {
		return err
	}
	for _, fd := range sets[set] {
		if fd.Opaque != forReading {
			continue
		}
		if _, err := command(dom, "remove-fd", map[string]any{"fdset-id": set, "fd": fd.FD}); err != nil {
			return err
		}
		if sets, err = setsOf(dom); err != nil {
			return err
		}
		for _, left := range sets[set] {
			if left.FD == fd.FD {
				return ErrPaused
			}
		}
	}
	return nil
}
