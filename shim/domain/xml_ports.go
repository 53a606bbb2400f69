package domain

import (
	"slices"

	"libvirt.org/go/libvirtxml"

	"github.com/nodevirt/nodevirt/shim/vmspec"
)

// The numbers of PCI Express ports are KubeVirt's: a VM has at least as many ports as
// defaultPorts, and at least freePorts more than devices. A VM with more RAM than
// largeMemory has more of both.
const (
	largeMemory  = 2 << 30
	defaultPorts = 8
	freePorts    = 3
	largePorts   = 16
	largeFree    = 6
	// maxPort is the highest index of a port that is added for later devices.
	maxPort = 31
)

// addPorts adds PCI Express ports, one for each device of d and those for devices that the
// running VM gets: libvirt adds none to a running VM. libvirt places the devices on the
// first ones. A board without PCI Express needs no ports.
func addPorts(d *libvirtxml.DomainDeviceList, spec vmspec.Spec) {
	if spec.NoHotplug || !spec.PCIExpress() {
		return
	}
	total, free := defaultPorts, freePorts
	if spec.Memory > largeMemory {
		total, free = largePorts, largeFree
	}
	used := onPorts(d)
	ports := min(used+max(total-used, free), maxPort)
	d.Controllers = append(d.Controllers, libvirtxml.DomainController{Type: "pci", Index: new(uint(0)), Model: "pcie-root"})
	for i := range ports {
		d.Controllers = append(d.Controllers, libvirtxml.DomainController{Type: "pci", Index: new(uint(i + 1)), Model: "pcie-root-port"})
	}
}

// onPorts returns the number of devices that take a port, or one more where libvirt has the
// choice. The first SCSI disk brings a controller, also while the VM runs.
func onPorts(d *libvirtxml.DomainDeviceList) int {
	n := len(d.Interfaces) + len(d.RNGs) + len(d.Filesystems) + len(d.Watchdogs)
	serial := len(d.Channels) > 0
	for _, disk := range d.Disks {
		if disk.Target.Bus == string(vmspec.BusVirtio) {
			n++
		}
	}
	for _, c := range d.Controllers {
		switch {
		case c.Type == usb && c.Model != "none":
			n++
		case c.Type == "virtio-serial":
			serial = true
		}
	}
	for _, h := range d.Hostdevs {
		if h.SubsysUSB == nil {
			n++
		}
	}
	for _, i := range d.Inputs {
		if i.Bus == virtio {
			n++
		}
	}
	for _, is := range []bool{serial, d.MemBalloon != nil && d.MemBalloon.Model != "none", d.VSock != nil} {
		if is {
			n++
		}
	}
	if slices.ContainsFunc(d.Sounds, func(s libvirtxml.DomainSound) bool { return s.Model != "ich9" }) {
		n++
	}
	return n + 1 // the SCSI controller
}
