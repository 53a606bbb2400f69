package domain

import (
	"fmt"
	"strings"

	"libvirt.org/go/libvirtxml"

	"github.com/nodevirt/nodevirt/shim/vmspec"
)

// inputs returns the VM's tablets. Their aliases can't be those of disks or network
// cards. With a display, a board of arm64 has a keyboard too: libvirt adds none.
func inputs(desc Description) []libvirtxml.DomainInput {
	var all []libvirtxml.DomainInput
	if isARM(desc) && desc.Spec.Display {
		all = append(all, libvirtxml.DomainInput{Type: "keyboard", Bus: usb})
	}
	for _, i := range desc.Spec.Inputs {
		all = append(all, libvirtxml.DomainInput{
			Type: "tablet", Bus: i.Bus, Alias: &libvirtxml.DomainAlias{Name: "ua-input_" + i.Name},
		})
	}
	port, ports := 0, usbPorts(desc)
	for i := range all {
		if all[i].Bus == usb {
			port++
			all[i].Address = usbAddress(port, ports)
		}
	}
	return all
}

func watchdogs(action vmspec.WatchdogAction) []libvirtxml.DomainWatchdog {
	if action == "" {
		return nil
	}
	return []libvirtxml.DomainWatchdog{{Model: "i6300esb", Action: string(action)}}
}

// panics returns the devices with which a guest reports a panic, so that its domain ends as
// crashed. TCG does not have Microsoft's.
func panics(desc Description) []libvirtxml.DomainPanic {
	if isARM(desc) { // libvirt 9.0 knows none for its board
		return nil
	}
	all := []libvirtxml.DomainPanic{{Model: "isa"}}
	if desc.Spec.HypervPanic && desc.Accelerator != TCG {
		all = append(all, libvirtxml.DomainPanic{Model: "hyperv"})
	}
	return all
}

func sounds(model string) []libvirtxml.DomainSound {
	if model == "" {
		return nil
	}
	return []libvirtxml.DomainSound{{Model: model}}
}

// pciAddress returns a device's address, nil for one that libvirt chooses.
func pciAddress(given vmspec.PCIAddress) (*libvirtxml.DomainAddress, error) {
	if given == "" {
		return nil, nil
	}
	var domain, bus, slot, function uint
	if _, err := fmt.Sscanf(strings.ToLower(string(given)), "%4x:%2x:%2x.%1x", &domain, &bus, &slot, &function); err != nil {
		return nil, fmt.Errorf("PCI address %q: %w", given, err)
	}
	return &libvirtxml.DomainAddress{PCI: &libvirtxml.DomainAddressPCI{
		Domain: &domain, Bus: &bus, Slot: &slot, Function: &function,
	}}, nil
}
