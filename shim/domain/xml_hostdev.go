package domain

import (
	"fmt"
	"slices"

	"libvirt.org/go/libvirtxml"

	"github.com/nodevirt/nodevirt/shim/hostdevice"
	"github.com/nodevirt/nodevirt/shim/vmspec"
)

// hostdevs returns the devices of the node that the guest gets. libvirt neither binds nor
// unbinds their drivers. It lets QEMU lock the guest's memory by itself; a hard limit of
// memory would need a cgroup of libvirt's.
func hostdevs(desc Description) ([]libvirtxml.DomainHostdev, error) {
	if len(desc.HostDevices) != len(desc.Spec.HostDevices) {
		return nil, fmt.Errorf("%d host devices for %d in the spec", len(desc.HostDevices), len(desc.Spec.HostDevices))
	}
	shown := pictures(desc)
	var all []libvirtxml.DomainHostdev
	for i, spec := range desc.Spec.HostDevices {
		h, err := hostdev(desc.HostDevices[i], shown[i])
		if err != nil {
			return nil, fmt.Errorf("host device %s: %w", spec.Name, err)
		}
		if h.Address, err = pciAddress(spec.PCI); err != nil {
			return nil, fmt.Errorf("host device %s: %w", spec.Name, err)
		}
		h.Alias = &libvirtxml.DomainAlias{Name: hostdevAlias(spec)}
		if spec.BootOrder > 0 {
			h.Boot = &libvirtxml.DomainDeviceBoot{Order: spec.BootOrder}
		}
		all = append(all, h)
	}
	return all, nil
}

func hostdev(d hostdevice.Device, s shows) (libvirtxml.DomainHostdev, error) {
	switch d.Kind {
	case hostdevice.PCI:
		source, err := pciAddress(vmspec.PCIAddress(d.Address))
		if err != nil {
			return libvirtxml.DomainHostdev{}, err
		}
		return libvirtxml.DomainHostdev{Managed: "no", SubsysPCI: &libvirtxml.DomainHostdevSubsysPCI{
			Source: &libvirtxml.DomainHostdevSubsysPCISource{Address: source.PCI},
		}}, nil
	case hostdevice.MDev:
		return libvirtxml.DomainHostdev{Managed: "no", SubsysMDev: &libvirtxml.DomainHostdevSubsysMDev{
			Model: "vfio-pci", Display: s.display, RamFB: s.ramFB,
			Source: &libvirtxml.DomainHostdevSubsysMDevSource{Address: &libvirtxml.DomainAddressMDev{UUID: d.Address}},
		}}, nil
	case hostdevice.USB:
		bus, number, err := hostdevice.USBAddress(d.Address)
		return libvirtxml.DomainHostdev{Managed: "no", SubsysUSB: &libvirtxml.DomainHostdevSubsysUSB{
			Source: &libvirtxml.DomainHostdevSubsysUSBSource{Address: &libvirtxml.DomainAddressUSB{Bus: &bus, Device: &number}},
		}}, err
	}
	return libvirtxml.DomainHostdev{}, fmt.Errorf("unknown kind %q", d.Kind)
}

// shows are libvirt's words about the picture of a virtual GPU.
type shows struct{ display, ramFB string }

// pictures returns which mediated GPUs show a picture. As with KubeVirt the first one does
// if no GPU says otherwise.
func pictures(desc Description) []shows {
	all := make([]shows, len(desc.Spec.HostDevices))
	if !desc.Spec.Display {
		return all
	}
	chosen := slices.ContainsFunc(desc.Spec.HostDevices, func(d vmspec.HostDevice) bool { return d.Picture != nil })
	for i, spec := range desc.Spec.HostDevices {
		if spec.Kind != vmspec.HostDeviceGPU || desc.HostDevices[i].Kind != hostdevice.MDev {
			continue
		}
		if !chosen {
			all[i] = shows{"on", "on"}
			return all
		}
		if spec.Picture == nil || !spec.Picture.Enabled {
			continue
		}
		all[i].display = "on"
		if spec.Picture.RAMFB {
			all[i].ramFB = "on"
		}
	}
	return all
}

// hostdevFiles returns the nodes and folders of the node that QEMU opens for host devices.
func hostdevFiles(desc Description) (read, write []string) {
	for _, d := range desc.HostDevices {
		more := []string{d.Node}
		if d.Kind == hostdevice.USB {
			read = append(read, hostdevice.Sysfs)
		} else {
			more = append(more, hostdevice.VFIO)
		}
		for _, path := range more {
			if !slices.Contains(write, path) {
				write = append(write, path)
			}
		}
	}
	return slices.Compact(read), write
}
