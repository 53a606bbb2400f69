// Package hostdevice finds the devices of a node that a VM gets: PCI devices, mediated
// devices and USB devices.
//
// It owns the way from what the kubelet hands to a container (variables and device nodes of
// device plug-ins, CDI devices, metadata of DRA drivers, Multus' device information) to a
// device in sysfs, and the check that the container was given the device's node. It leaves
// the fields of a VMI to package vmspec, the XML to package domain, and binding a device to
// its VFIO driver to the device's plug-in.
package hostdevice

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
)

// Kind is the kind of a device.
type Kind string

// The kinds of devices.
const (
	PCI  Kind = "pci"
	MDev Kind = "mdev"
	USB  Kind = "usb"
)

// Device is a device of the node. It is a value that records hold.
type Device struct {
	Kind Kind `json:"kind"`
	// Address is a PCI address such as 0000:65:00.0, the UUID of a mediated device, or the
	// bus and the number of a USB device, such as 1:4.
	Address string `json:"address"`
	// Node is the path of the device node that QEMU opens: the VFIO group's, or the USB
	// device's.
	Node string `json:"node"`
}

// VFIO is the node that gives QEMU the VFIO groups of which it has the nodes. All users may
// open it.
const VFIO = "/dev/vfio/vfio"

// Sysfs is the folder of USB devices, which QEMU reads.
const Sysfs = "/sys/bus/usb/devices"

var (
	pciAddress = regexp.MustCompile(`^[0-9a-f]{4}:[0-9a-f]{2}:[0-9a-f]{2}\.[0-7]$`)
	mdevUUID   = regexp.MustCompile(`^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$`)
	vfioGroup  = regexp.MustCompile(`^[0-9]{1,9}$`)
)

// Node finds the devices of a node.
type Node struct {
	// Root is the root of the node's file system; / except in tests.
	Root string
}

// device returns the device at an address, whose node the container was given.
func (n Node) device(kind Kind, address string, g given) (Device, error) {
	d := Device{Kind: kind, Address: strings.ToLower(address)}
	var err error
	switch kind {
	case PCI:
		d.Node, err = n.pciNode(d.Address)
	case MDev:
		d.Node, err = n.mdevNode(d.Address)
	case USB:
		d.Node, err = usbNode(d.Address)
	}
	if err != nil {
		return d, err
	}
	if !g.nodes[d.Node] {
		return d, fmt.Errorf("%s device %s: the kubelet did not give %s to the container; its device plug-in must return that node",
			kind, d.Address, d.Node)
	}
	return d, nil
}

func (n Node) pciNode(address string) (string, error) {
	if !pciAddress.MatchString(address) {
		return "", fmt.Errorf("%.64q is not a PCI address", address)
	}
	dir := filepath.Join(n.Root, "/sys/bus/pci/devices", address)
	driver, err := os.Readlink(filepath.Join(dir, "driver"))
	if err != nil {
		return "", fmt.Errorf("PCI device %s: find its driver: %w; bind the device to vfio-pci", address, err)
	}
	if driver = filepath.Base(driver); !strings.Contains(driver, "vfio") {
		return "", fmt.Errorf("PCI device %s is bound to the driver %s; bind it to vfio-pci", address, driver)
	}
	return groupNode(dir)
}

func (n Node) mdevNode(uuid string) (string, error) {
	if !mdevUUID.MatchString(uuid) {
		return "", fmt.Errorf("%.64q is not the UUID of a mediated device", uuid)
	}
	return groupNode(filepath.Join(n.Root, "/sys/bus/mdev/devices", uuid))
}

// groupNode returns the node of a device's VFIO group.
func groupNode(dir string) (string, error) {
	group, err := os.Readlink(filepath.Join(dir, "iommu_group"))
	if err != nil {
		return "", fmt.Errorf("find the IOMMU group of device %s: %w; enable the node's IOMMU", filepath.Base(dir), err)
	}
	if group = filepath.Base(group); !vfioGroup.MatchString(group) {
		return "", fmt.Errorf("device %s is in %.64q, which is not an IOMMU group", filepath.Base(dir), group)
	}
	return "/dev/vfio/" + group, nil
}

// usbNode returns the node of a USB device, such as /dev/bus/usb/001/004.
func usbNode(address string) (string, error) {
	bus, number, err := USBAddress(address)
	if err != nil {
		return "", err
	}
	return fmt.Sprintf("/dev/bus/usb/%03d/%03d", bus, number), nil
}

// USBAddress returns the bus and the number of a USB device.
func USBAddress(address string) (bus, number uint, err error) {
	first, second, _ := strings.Cut(address, ":")
	b, err := strconv.ParseUint(first, 10, 8)
	if err == nil {
		var d uint64
		d, err = strconv.ParseUint(second, 10, 8)
		if err == nil {
			return uint(b), uint(d), nil
		}
	}
	return 0, 0, fmt.Errorf("%.64q is not the address of a USB device, such as 1:4", address)
}
