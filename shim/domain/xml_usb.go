package domain

import (
	"slices"
	"strconv"

	"libvirt.org/go/libvirtxml"

	"github.com/nodevirt/nodevirt/shim/hostdevice"
	"github.com/nodevirt/nodevirt/shim/vmspec"
)

// usb is libvirt's name of the bus, and of its controller.
const usb = "usb"

// The numbers of ports of QEMU's USB controller: by default, and at most.
const (
	fewUSBPorts = 4
	allUSBPorts = 15
)

// usbController returns the guest's USB controller, which is none without a device on it.
func usbController(desc Description) libvirtxml.DomainController {
	c := libvirtxml.DomainController{Type: usb, Model: "none"}
	if len(usbDisks(desc.Spec)) > 0 || desc.Spec.USBRedirection ||
		slices.ContainsFunc(inputs(desc), func(i libvirtxml.DomainInput) bool { return i.Bus == usb }) ||
		slices.ContainsFunc(desc.HostDevices, func(d hostdevice.Device) bool { return d.Kind == hostdevice.USB }) {
		c.Model = "qemu-xhci"
	}
	if usbPorts(desc) == allUSBPorts {
		c.USB = &libvirtxml.DomainControllerUSB{Port: new(uint(allUSBPorts))}
	}
	return c
}

// usbPorts returns the number of ports of the USB controller. A VM without disks on USB keeps the default
// number, with which it may have started: devices without a port get a hub from libvirt.
func usbPorts(desc Description) int {
	if len(usbDisks(desc.Spec)) > 0 {
		return allUSBPorts
	}
	return fewUSBPorts
}

// usbAddress returns the address of a port of the USB controller, from 1 on; nil for one that it does not have.
// libvirt gives the same ports by itself, but not before it compares the domains of a migration.
func usbAddress(port, ports int) *libvirtxml.DomainAddress {
	if port > ports {
		return nil
	}
	return &libvirtxml.DomainAddress{USB: &libvirtxml.DomainAddressUSB{Bus: new(uint(0)), Port: strconv.Itoa(port)}}
}

// usbDisks returns the names of the disks on USB.
func usbDisks(spec vmspec.Spec) []string {
	var all []string
	for _, d := range spec.Disks {
		if d.Bus == vmspec.BusUSB {
			all = append(all, d.Name)
		}
	}
	return all
}

// usbDiskAddress returns the address of a disk on USB. The disks' ports follow those of the inputs.
func usbDiskAddress(desc Description, spec vmspec.Disk) *libvirtxml.DomainAddress {
	port := 1 + slices.Index(usbDisks(desc.Spec), spec.Name)
	for _, i := range inputs(desc) {
		if i.Bus == usb {
			port++
		}
	}
	return usbAddress(port, usbPorts(desc))
}

// usbSlots returns what connects USB devices of clients, who speak the protocol usbredir.
func usbSlots(desc Description) []libvirtxml.DomainRedirDev {
	if !desc.Spec.USBRedirection {
		return nil
	}
	var all []libvirtxml.DomainRedirDev
	for _, path := range desc.USBSockets {
		all = append(all, libvirtxml.DomainRedirDev{Bus: usb, Source: &libvirtxml.DomainChardevSource{
			UNIX: &libvirtxml.DomainChardevSourceUNIX{Mode: "bind", Path: path},
		}})
	}
	return all
}
