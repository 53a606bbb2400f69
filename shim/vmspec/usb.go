package vmspec

import "k8s.io/apimachinery/pkg/util/validation/field"

const (
	// clientDevices is the number of clients' USB devices that a guest can have at once, as with KubeVirt.
	clientDevices = 4
	// maxUSBDevices bounds the USB devices of a VM with disks on USB. The guest's controller has a few
	// ports more, for devices of the node and for a keyboard.
	maxUSBDevices = 12
)

// checkUSB refuses more USB devices than there are ports for, without those of the node. at is the devices' path.
func checkUSB(at *field.Path, s *Spec) field.ErrorList {
	disks, others := 0, 0
	for _, d := range s.Disks {
		if d.Bus == BusUSB {
			disks++
		}
	}
	for _, i := range s.Inputs {
		if i.Bus == string(BusUSB) {
			others++
		}
	}
	if s.USBRedirection {
		others += clientDevices
	}
	if disks == 0 || disks+others <= maxUSBDevices {
		return nil
	}
	return field.ErrorList{refused(at.Child("disks"), "its disks, inputs and clientPassthrough are %d USB devices; a VM with disks on bus usb has at most %d",
		disks+others, maxUSBDevices)}
}
