package vmspec

import (
	"testing"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

func TestCheckContainer(t *testing.T) {
	asked := &runtimeapi.ContainerConfig{
		Metadata: &runtimeapi.ContainerMetadata{Name: "vm"},
		Args:     []string{"sleep"},
	}
	const want = `container vm: command and args: a VM runs what its disk boots; remove them`
	if err := checkContainer(asked); err == nil || err.Error() != want {
		t.Errorf("got %v\nwant %s", err, want)
	}
}

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
		if err := checkDevices(c, nil); err == nil || err.Error() != want {
			t.Errorf("%s: %v", name, err)
		}
		if err := checkDevices(c, []HostDevice{{Name: "gpu"}}); err != nil {
			t.Errorf("%s, asked for: %v", name, err)
		}
		if disks, err := readMounts(c); err != nil || len(disks) > 0 {
			t.Errorf("%s: disks %v, %v", name, disks, err)
		}
	}
}
