package vmspec

import (
	"bytes"
	"encoding/json"
	"fmt"
	"slices"
)

// DeviceType is the type of a device in the meta data of a config drive.
type DeviceType string

// The types of devices. Nova has the first two, KubeVirt all.
const (
	DeviceDisk DeviceType = "disk"
	DeviceNIC  DeviceType = "nic"
	DeviceHost DeviceType = "hostdev"
)

// TaggedDevice is a device with a tag, as the meta data of a config drive describes it
// (Nova's documentation, "Metadata service"; KubeVirt's DeviceData).
type TaggedDevice struct {
	Type DeviceType `json:"type"`
	// Bus is pci, scsi, sata or usb. Address is the device's place there: 0000:01:00.0 on
	// PCI, controller:bus:target:unit on SCSI and SATA, bus:port on USB.
	Bus     string `json:"bus"`
	Address string `json:"address"`
	// MAC is that of a network card, and Serial that of a disk.
	MAC    string   `json:"mac,omitempty"`
	Serial string   `json:"serial,omitempty"`
	Tags   []string `json:"tags"`
}

// keyDevices is the config drive's name of the devices with tags.
const keyDevices = "devices"

// maxTaggedDevice bounds a [TaggedDevice] as JSON, in bytes: its words, a tag, a serial number, a MAC
// address and an address.
const maxTaggedDevice = 320

// Tagged returns the number of devices with tags that the guest can read of: 0 without a config drive.
func Tagged(s Spec) int {
	if !slices.ContainsFunc(s.Disks, func(d Disk) bool { return d.Source == SourceConfigDrive }) {
		return 0
	}
	n := 0
	count := func(tag string) {
		if tag != "" {
			n++
		}
	}
	for _, d := range s.Disks {
		count(d.Tag)
	}
	for _, i := range s.Interfaces {
		count(i.Tag)
	}
	for _, h := range s.HostDevices {
		count(h.Tag)
	}
	return n
}

// WithRoom returns the config drive's meta data with spaces at the end, which JSON permits, so that
// [WithDevices] can add so many devices later without a change of its length.
func WithRoom(metaData string, devices int) string {
	if devices == 0 {
		return metaData
	}
	spaces := len(`"":[],`) + len(keyDevices) + devices*maxTaggedDevice
	return metaData + string(bytes.Repeat([]byte(" "), spaces)) + "\n"
}

// WithDevices returns the meta data of a config drive with these devices in place of those that it has.
// The result has the same length.
func WithDevices(metaData []byte, devices []TaggedDevice) ([]byte, error) {
	all := map[string]any{}
	decoder := json.NewDecoder(bytes.NewReader(metaData))
	decoder.UseNumber()
	if err := decoder.Decode(&all); err != nil {
		return nil, fmt.Errorf("the config drive's meta data: %w", err)
	}
	if all == nil {
		all = map[string]any{}
	}
	all[keyDevices] = devices
	var text bytes.Buffer
	encoder := json.NewEncoder(&text)
	encoder.SetEscapeHTML(false)
	if err := encoder.Encode(all); err != nil {
		return nil, fmt.Errorf("the config drive's meta data: %w", err)
	}
	rest := len(metaData) - text.Len()
	if rest < 0 {
		return nil, fmt.Errorf("the config drive's meta data has no room for the tags of %d devices; create the container again", len(devices))
	}
	return append(text.Bytes(), bytes.Repeat([]byte(" "), rest)...), nil
}
