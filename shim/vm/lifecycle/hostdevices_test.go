package lifecycle_test

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/nodevirt/nodevirt/shim/domain"
	"github.com/nodevirt/nodevirt/shim/hostdevice"
	"github.com/nodevirt/nodevirt/shim/vm/vmerrors"
	"github.com/nodevirt/nodevirt/shim/vmspec"
)

// withGPU has a GPU of a device plug-in.
const withGPU = `{"domain": {"devices": {"gpus": [{"name": "gpu", "deviceName": "example.com/gpu"}]}}, ` + restOfVMI

// addGPU gives the node a GPU, and returns the config of a container that has the
// plug-in's variable and the node's path.
func (n *node) addGPU(t *testing.T) *runtimeapi.ContainerConfig {
	t.Helper()
	device := filepath.Join(n.dir, "sys/bus/pci/devices/0000:65:00.0")
	must(t, errors.Join(
		os.MkdirAll(device, 0o700), os.Symlink("../../drivers/vfio-pci", filepath.Join(device, "driver")),
		os.Symlink("../groups/12", filepath.Join(device, "iommu_group")),
		os.MkdirAll(filepath.Join(n.dir, "dev/vfio"), 0o700), os.WriteFile(filepath.Join(n.dir, "dev/vfio/12"), nil, 0o600),
	))
	c := request(0)
	c.Envs = []*runtimeapi.KeyValue{{Key: "PCI_RESOURCE_EXAMPLE_COM_GPU", Value: []byte("0000:65:00.0")}}
	c.Devices = []*runtimeapi.Device{{HostPath: "/dev/vfio/12", ContainerPath: "/dev/vfio/12", Permissions: "mrw"}}
	return c
}

// TestHostDevices: a VM has the device that the kubelet handed to its container, and no other.
func TestHostDevices(t *testing.T) {
	onNode(t, func(t *testing.T, n *node) {
		c := n.addGPU(t)
		handed := c.Devices
		c.Devices = nil
		pod := n.addPod(t, "pod", map[string]string{vmspec.AnnotationVMI: withGPU})
		_, err := n.Create(t.Context(), pod, c)
		const want = `nodevirt.io/vmi: spec.domain.devices.gpus[0]: pci device 0000:65:00.0: the kubelet did not give /dev/vfio/12 to the container`
		if !errors.Is(err, vmerrors.ErrInvalid) || !strings.Contains(err.Error(), want) {
			t.Fatalf("a variable alone: %v", err)
		}
		n.wantNothing(t)

		c.Devices = handed
		id, err := n.Create(t.Context(), pod, c)
		must(t, err)
		must(t, n.Start(t.Context(), id))
		all := n.rec(t, id).HostDevices
		if len(all) != 1 || all[0] != (hostdevice.Device{Kind: hostdevice.PCI, Address: "0000:65:00.0", Node: "/dev/vfio/12"}) {
			t.Errorf("its devices are %+v", all)
		}
		must(t, n.Stop(t.Context(), id, 0))
		must(t, n.Remove(t.Context(), id))
		n.wantNothing(t)
	})
}

// withSEV has an encrypted guest.
const withSEV = `{"domain": {"launchSecurity": {"sev": {}}, "firmware": {"bootloader": {"efi": {"secureBoot": false}}}, "devices": {}}, ` + restOfVMI

// TestLaunchSecurity: a VM starts only where libvirt can encrypt its memory, and opens the processor's device
// while it runs.
func TestLaunchSecurity(t *testing.T) {
	onNode(t, func(t *testing.T, n *node) {
		variables := n.addFirmware(t)
		pod := n.addPod(t, "pod", map[string]string{vmspec.AnnotationVMI: withSEV})
		_, err := n.Create(t.Context(), pod, request(0))
		if err == nil || !strings.Contains(err.Error(), "with the feature amd-sev") {
			t.Fatalf("with firmware for other guests: %v", err)
		}
		n.wantNothing(t)

		descriptor := filepath.Join(filepath.Dir(variables), "firmware", "60.json")
		text, err := os.ReadFile(descriptor)
		must(t, errors.Join(err, os.WriteFile(descriptor, []byte(strings.Replace(string(text), "{", `{"features": ["amd-sev"], `, 1)), 0o600)))
		device := filepath.Join(n.dir, hostdevice.SEV)
		must(t, errors.Join(os.MkdirAll(filepath.Dir(device), 0o700), os.WriteFile(device, nil, 0o600)))
		id, err := n.Create(t.Context(), pod, request(0))
		must(t, err)
		err = n.Start(t.Context(), id)
		if !errors.Is(err, domain.ErrUnsupported) || !strings.Contains(err.Error(), "virsh domcapabilities lists no SEV") {
			t.Fatalf("on a node without SEV: %v", err)
		}
		must(t, n.Remove(t.Context(), id))

		n.libvirt.Host.Offered = domain.Encryption{SEV: true, CBitPos: 51, ReducedPhysBits: 1}
		id, err = n.Create(t.Context(), pod, request(1))
		must(t, err)
		must(t, n.Start(t.Context(), id))
		if mode := modeOf(t, device); mode != 0o660 { // the mask of its list
			t.Errorf("%s has mode %o", hostdevice.SEV, mode)
		}
		if x := n.libvirt.XML(n.rec(t, id).Domain.UUID); !strings.Contains(x, "<cbitpos>51</cbitpos>") {
			t.Errorf("libvirt got %s", x)
		}
		must(t, n.Stop(t.Context(), id, 0))
		must(t, n.Remove(t.Context(), id))
		n.wantNothing(t)
	})
}

func modeOf(t *testing.T, path string) os.FileMode {
	t.Helper()
	info, err := os.Stat(path)
	if err != nil {
		t.Fatal(err)
	}
	return info.Mode().Perm()
}
