package domain

import (
	"context"
	"fmt"

	"libvirt.org/go/libvirt"
	"libvirt.org/go/libvirtxml"

	"github.com/nodevirt/nodevirt/shim/vmspec"
)

// Tagged returns the spec's devices with tags, with the addresses that libvirt gave them when it
// defined the domain. It leaves out a device that the domain does not have: a hook sidecar may have
// removed it.
func (l *Lifecycle) Tagged(ctx context.Context, uuid string, spec vmspec.Spec) ([]vmspec.TaggedDevice, error) {
	return onDomain(ctx, l.conn, "read the devices of", uuid, func(dom *libvirt.Domain) ([]vmspec.TaggedDevice, error) {
		text, err := dom.GetXMLDesc(0)
		if err != nil {
			return nil, err
		}
		return TaggedIn(text, spec)
	})
}

// TaggedIn is [Lifecycle.Tagged] for a domain's XML. It finds the devices by their aliases, which nothing
// changes. It leaves out a device without an address.
func TaggedIn(text string, spec vmspec.Spec) ([]vmspec.TaggedDevice, error) {
	var d libvirtxml.Domain
	if err := d.Unmarshal(text); err != nil {
		return nil, fmt.Errorf("decode the domain's XML: %w", err)
	}
	var found []vmspec.TaggedDevice
	if d.Devices == nil {
		return nil, nil
	}
	all := d.Devices
	add := func(tag string, one vmspec.TaggedDevice, bus string, a *libvirtxml.DomainAddress) {
		if one.Bus, one.Address = place(bus, a); one.Address != "" {
			one.Tags = []string{tag}
			found = append(found, one)
		}
	}
	tags := map[string]string{}
	for _, i := range spec.Interfaces {
		tags[nicAlias(i)] = i.Tag
	}
	for _, h := range spec.HostDevices {
		tags[hostdevAlias(h)] = h.Tag
	}
	for _, d := range spec.Disks {
		tags[diskAlias(d)] = d.Tag
	}
	tagOf := func(a *libvirtxml.DomainAlias) string {
		if a == nil {
			return ""
		}
		return tags[a.Name]
	}
	for _, i := range all.Interfaces {
		if tag := tagOf(i.Alias); tag != "" {
			one := vmspec.TaggedDevice{Type: vmspec.DeviceNIC}
			if i.MAC != nil {
				one.MAC = i.MAC.Address
			}
			add(tag, one, "", i.Address)
		}
	}
	for _, d := range all.Disks {
		if tag := tagOf(d.Alias); tag != "" && d.Target != nil {
			add(tag, vmspec.TaggedDevice{Type: vmspec.DeviceDisk, Serial: d.Serial}, d.Target.Bus, d.Address)
		}
	}
	cards := map[string]bool{}
	for _, h := range spec.HostDevices {
		cards[hostdevAlias(h)] = h.Kind == vmspec.HostDeviceSRIOV
	}
	for _, h := range all.Hostdevs {
		if tag := tagOf(h.Alias); tag != "" {
			one := vmspec.TaggedDevice{Type: vmspec.DeviceHost}
			if cards[h.Alias.Name] {
				one.Type = vmspec.DeviceNIC
			}
			add(tag, one, "", h.Address)
		}
	}
	return found, nil
}

// place returns a device's bus, and its address there; empty if it has none. The bus of a
// controller's drive is that of the disk.
func place(bus string, a *libvirtxml.DomainAddress) (of, address string) {
	switch {
	case a == nil:
	case a.PCI != nil:
		p := a.PCI
		return "pci", fmt.Sprintf("%04x:%02x:%02x.%x", number(p.Domain), number(p.Bus), number(p.Slot), number(p.Function))
	case a.Drive != nil:
		d := a.Drive
		return bus, fmt.Sprintf("%d:%d:%d:%d", number(d.Controller), number(d.Bus), number(d.Target), number(d.Unit))
	case a.USB != nil:
		return usb, fmt.Sprintf("%d:%s", number(a.USB.Bus), a.USB.Port)
	}
	return "", ""
}

func number(n *uint) uint {
	if n == nil {
		return 0
	}
	return *n
}

// These are the names by which libvirt knows devices; see [nic] and [hostdevs].

func diskAlias(d vmspec.Disk) string { return "ua-" + d.Name }

func nicAlias(i vmspec.Interface) string { return NICAlias(i.Name) }

// NICAlias returns the name by which libvirt knows a network card of the spec.
func NICAlias(name string) string { return "ua-nic_" + name }

func hostdevAlias(h vmspec.HostDevice) string { return "ua-" + string(h.Kind) + "_" + h.Name }
