package domain

import (
	"testing"

	"github.com/nodevirt/nodevirt/shim/vmspec"
)

// usbDomain has more USB devices than the controller has ports by default.
func usbDomain() Description {
	m := plainDomain()
	m.Spec.Inputs = []vmspec.Input{{Name: "pen", Bus: "virtio"}, {Name: "mouse", Bus: usb}}
	m.Spec.USBRedirection = true
	m.USBSockets = []string{"/run/vm/a.usb0", "/run/vm/a.usb1", "/run/vm/a.usb2", "/run/vm/a.usb3"}
	m.Spec.Disks = append(m.Spec.Disks,
		vmspec.Disk{Name: "stick", Bus: vmspec.BusUSB, Target: "sda", Serial: "U-1", BootOrder: 2},
		vmspec.Disk{Name: "fixed", Bus: vmspec.BusUSB, Target: "sdb", ReadOnly: true},
	)
	for _, name := range []string{"stick", "fixed"} {
		m.Disks = append(m.Disks, Disk{Layers: []Layer{{Format: "raw", Path: "/run/vm/" + name + ".raw", FDGroup: name + "-0"}}})
	}
	return m
}

// TestUSBPorts: a VM without a disk on USB keeps the ports that it started with.
func TestUSBPorts(t *testing.T) {
	m := usbDomain()
	if c := usbController(m); c.USB == nil || *c.USB.Port != allUSBPorts {
		t.Errorf("with disks: %+v", c.USB)
	}
	m.Spec.Disks, m.Disks = m.Spec.Disks[:1], m.Disks[:1]
	if c := usbController(m); c.Model != "qemu-xhci" || c.USB != nil {
		t.Errorf("without disks: %s, %+v", c.Model, c.USB)
	}
	m.Spec.USBRedirection, m.Spec.Inputs = false, nil
	if c := usbController(m); c.Model != "none" {
		t.Errorf("without a USB device: %s", c.Model)
	}
}
