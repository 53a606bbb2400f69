package vmspec

import (
	"strings"
	"testing"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// TestCheckDevices: no device is given to a container for nothing, and none becomes a disk.
func TestCheckDevices(t *testing.T) {
	const want = `container vm: devices: a guest gets only those that spec.domain.devices of annotation nodevirt.io/vmi names; ` +
		`add hostDevices or gpus there, or remove the devices`
	for name, c := range map[string]*runtimeapi.ContainerConfig{
		"CDI":  {CDIDevices: []*runtimeapi.CDIDevice{{Name: "vendor.example/gpu=0"}}},
		"VFIO": {Devices: []*runtimeapi.Device{{HostPath: "/dev/vfio/12", ContainerPath: "/dev/vfio/12"}}},
		"USB":  {Devices: []*runtimeapi.Device{{HostPath: "/dev/bus/usb/001/004", ContainerPath: "/dev/bus/usb/001/004"}}},
	} {
		c.Metadata = &runtimeapi.ContainerMetadata{Name: "vm"}
		if err := checkDevices(c, Spec{}); err == nil || err.Error() != want {
			t.Errorf("%s: %v", name, err)
		}
		if err := checkDevices(c, Spec{HostDevices: []HostDevice{{Name: "gpu"}}}); err != nil {
			t.Errorf("%s, asked for: %v", name, err)
		}
		if disks, err := readMounts(c); err != nil || len(disks) > 0 {
			t.Errorf("%s: disks %v, %v", name, disks, err)
		}
	}
}

// TestVSOCK: the device and the field go together.
func TestVSOCK(t *testing.T) {
	device := []*runtimeapi.Device{{HostPath: "/dev/vhost-vsock", ContainerPath: "/dev/vhost-vsock"}}
	for _, tt := range []struct {
		devices []*runtimeapi.Device
		wanted  bool
		want    string
	}{
		{nil, false, ""},
		{device, true, ""},
		{nil, true, "autoattachVSOCK: container vm was not given /dev/vhost-vsock; request devices.kubevirt.io/vhost-vsock"},
		{device, false, "container vm: devices: /dev/vhost-vsock goes with spec.domain.devices.autoattachVSOCK"},
	} {
		c := &runtimeapi.ContainerConfig{Metadata: &runtimeapi.ContainerMetadata{Name: "vm"}, Devices: tt.devices}
		if err := checkDevices(c, Spec{VSOCK: tt.wanted}); err != nil {
			t.Errorf("%v, %t: %v", tt.devices, tt.wanted, err)
		}
		if disks, err := readMounts(c); err != nil || len(disks) > 0 {
			t.Errorf("disks %v, %v", disks, err)
		}
		err := checkVSOCK(c, Spec{VSOCK: tt.wanted})
		if tt.want == "" && err != nil || tt.want != "" && (err == nil || !strings.Contains(err.Error(), tt.want)) {
			t.Errorf("%v, %t: %v", tt.devices, tt.wanted, err)
		}
	}
}
