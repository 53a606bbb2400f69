package domain

import (
	"errors"
	"fmt"
	"os"

	"libvirt.org/go/libvirt"
	"libvirt.org/go/libvirtxml"
)

// errNoDrive says that the domain has no drive for a medium, or that the drive has one.
var errNoDrive = errors.New("there is no such empty CD-ROM drive")

func isDrive(d libvirtxml.DomainDisk) bool { return d.Device == "cdrom" }

// empty reports whether a disk is a drive without a medium.
func empty(d libvirtxml.DomainDisk) bool {
	s := d.Source
	return isDrive(d) && (s == nil || s.Network == nil && (s.File == nil || s.File.File == "") && (s.Block == nil || s.Block.Dev == ""))
}

// insert puts a medium into the empty drive of its target.
func (d PluggedDisk) insert(dom *libvirt.Domain, files []*os.File) error {
	all, err := disksOf(dom)
	if err != nil {
		return err
	}
	for _, drive := range all {
		if drive.Target == nil || drive.Target.Dev != d.Spec.Target {
			continue
		}
		if !empty(drive) {
			break
		}
		if err := addFiles(dom, firstSet+d.Set, files); err != nil {
			return err
		}
		layer := d.layer()
		return change(dom, drive, &layer)
	}
	return fmt.Errorf("%s: %w", d.Spec.Target, errNoDrive)
}

// change puts a medium into a drive, or takes the medium that the drive has. The guest can
// lock the tray: libvirt then asks for the medium, waits a few seconds, and fails.
func change(dom *libvirt.Domain, drive libvirtxml.DomainDisk, medium *Layer) error {
	if medium == nil && empty(drive) {
		return nil
	}
	drive.Source, drive.BackingStore, drive.Mirror = nil, nil, nil
	if medium != nil {
		drive.Source, drive.BackingStore = source(*medium), backing(nil)
		if drive.Driver == nil {
			drive.Driver = new(libvirtxml.DomainDiskDriver)
		}
		drive.Driver.Type = medium.Format // the former medium's can be another
	}
	if drive.Target.Tray == "open" { // as the guest has left it
		drive.Target.Tray = ""
	}
	text, err := drive.Marshal()
	if err != nil {
		return err
	}
	return dom.UpdateDeviceFlags(text, libvirt.DOMAIN_DEVICE_MODIFY_LIVE)
}
