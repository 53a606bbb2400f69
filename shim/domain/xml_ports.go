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
	bridges := bridged(d)
	for i := range ports {
		index, model := uint(i+1), "pcie-root-port"
		if bridges[index] {
			model = "pcie-to-pci-bridge"
		}
		d.Controllers = append(d.Controllers, libvirtxml.DomainController{Type: "pci", Index: &index, Model: model})
	}
}

// bridged returns the buses of devices with an address that no port has: a port has slot 0 alone. A bridge has the
// others, for conventional cards such as e1000, and is itself on a port before it.
func bridged(d *libvirtxml.DomainDeviceList) map[uint]bool {
	var places []*libvirtxml.DomainAddress
	for i := range d.Interfaces {
		places = append(places, d.Interfaces[i].Address)
	}
	for i := range d.Disks {
		places = append(places, d.Disks[i].Address)
	}
	for i := range d.Hostdevs {
		places = append(places, d.Hostdevs[i].Address)
	}
	all := map[uint]bool{}
	for _, a := range places {
		if a != nil && a.PCI != nil && *a.PCI.Slot > 0 && *a.PCI.Bus > 1 {
			all[*a.PCI.Bus] = true
		}
	}
	return all
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
