package vmspec

import (
	"testing"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

func TestCheckContainer(t *testing.T) {
	asked := &runtimeapi.ContainerConfig{
		Metadata:   &runtimeapi.ContainerMetadata{Name: "vm"},
		CDIDevices: []*runtimeapi.CDIDevice{{Name: "vendor.example/gpu=0"}},
		Args:       []string{"sleep"},
	}
	const want = `container vm: devices: devices are not supported in a VM yet; remove them
container vm: command and args: a VM runs what its disk boots; remove them`
	if err := checkContainer(asked); err == nil || err.Error() != want {
		t.Errorf("got %v\nwant %s", err, want)
	}
}
