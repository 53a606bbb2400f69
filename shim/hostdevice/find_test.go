package hostdevice

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/nodevirt/nodevirt/shim/vmspec"
)

const (
	sandboxID = "0123456789abcdef"
	mdev      = "4b20d080-1b54-4048-85b3-a6a62d165c01"
)

// testNode is a node with a GPU and its sound card in group 12, a network card's virtual
// function in 13, a device of the node's own driver in 14, and a mediated device in 15.
func testNode(t *testing.T) Node {
	t.Helper()
	n := Node{Root: t.TempDir()}
	for address, of := range map[string]struct{ group, driver string }{
		"0000:65:00.0": {"12", "vfio-pci"}, "0000:65:00.1": {"12", "vfio-pci"},
		"0000:3b:02.1": {"13", "mlx5_vfio_pci"}, "0000:00:1f.6": {"14", "e1000e"},
	} {
		dir := "/sys/bus/pci/devices/" + address
		n.link(t, "../../../../kernel/iommu_groups/"+of.group, dir+"/iommu_group")
		n.link(t, "../../drivers/"+of.driver, dir+"/driver")
	}
	n.write(t, "/sys/bus/pci/devices/0000:07:00.0/vendor", "")
	n.link(t, "../../../../../kernel/iommu_groups/15", "/sys/bus/mdev/devices/"+mdev+"/iommu_group")
	return n
}

func (n Node) write(t *testing.T, path, text string) {
	t.Helper()
	path = filepath.Join(n.Root, path)
	if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o700), os.WriteFile(path, []byte(text), 0o600)); err != nil {
		t.Fatal(err)
	}
}

func (n Node) link(t *testing.T, to, path string) {
	t.Helper()
	path = filepath.Join(n.Root, path)
	if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o700), os.Symlink(to, path)); err != nil {
		t.Fatal(err)
	}
}

// handed is the config of a container with variables, as NAME=VALUE, and nodes.
func handed(variables []string, nodes ...string) *runtimeapi.ContainerConfig {
	c := new(runtimeapi.ContainerConfig)
	for _, v := range variables {
		name, value, _ := strings.Cut(v, "=")
		c.Envs = append(c.Envs, &runtimeapi.KeyValue{Key: name, Value: []byte(value)})
	}
	for _, node := range nodes {
		c.Devices = append(c.Devices, &runtimeapi.Device{HostPath: node, ContainerPath: node, Permissions: "mrw"})
	}
	return c
}

func gpu(n, resource string) vmspec.HostDevice {
	return vmspec.HostDevice{Kind: vmspec.HostDeviceGPU, Path: "spec.domain.devices.gpus[" + n + "]", Resource: resource}
}

func generic(n, resource string) vmspec.HostDevice {
	return vmspec.HostDevice{Kind: vmspec.HostDeviceGeneric, Path: "spec.domain.devices.hostDevices[" + n + "]", Resource: resource}
}

func TestFindOfPlugins(t *testing.T) {
	n := testNode(t)
	authors := handed([]string{"PCI_RESOURCE_EXAMPLE_COM_GPU=0000:65:00.0", "PCI_RESOURCE_EXAMPLE_COM_GPU=0000:3b:02.1"}, "/dev/vfio/12", "/dev/vfio/13")
	renamed := handed([]string{"PCI_RESOURCE_EXAMPLE_COM_GPU=0000:65:00.0"})
	renamed.Devices = []*runtimeapi.Device{{HostPath: "/dev/loop3", ContainerPath: "/dev/vfio/12", Permissions: "mrw"}}
	for name, tt := range map[string]struct {
		wanted []vmspec.HostDevice
		config *runtimeapi.ContainerConfig
		want   []Device
		err    string
	}{
		"each kind": {
			wanted: []vmspec.HostDevice{gpu("0", "nvidia.com/GRID_T4-1Q"), gpu("1", "nvidia.com/TU104"), generic("0", "nvidia.com/TU104"), generic("1", "kubevirt.io/storage")},
			config: handed([]string{"MDEV_PCI_RESOURCE_NVIDIA_COM_GRID_T4-1Q=" + strings.ToUpper(mdev), "PCI_RESOURCE_NVIDIA_COM_TU104=0000:65:00.0,0000:65:00.1,", "USB_RESOURCE_KUBEVIRT_IO_STORAGE=1:4"},
				"/dev/vfio/vfio", "/dev/vfio/15", "/dev/vfio/12", "/dev/bus/usb/001/004"),
			want: []Device{
				{MDev, mdev, "/dev/vfio/15"}, {PCI, "0000:65:00.0", "/dev/vfio/12"}, {PCI, "0000:65:00.1", "/dev/vfio/12"}, {USB, "1:4", "/dev/bus/usb/001/004"},
			},
		},
		"resources that share a device": {
			wanted: []vmspec.HostDevice{generic("0", "a.com/x"), generic("1", "b.com/x")},
			config: handed([]string{"PCI_RESOURCE_A_COM_X=0000:65:00.0", "PCI_RESOURCE_B_COM_X=0000:65:00.0,0000:3b:02.1"}, "/dev/vfio/12", "/dev/vfio/13"),
			want:   []Device{{PCI, "0000:65:00.0", "/dev/vfio/12"}, {PCI, "0000:3b:02.1", "/dev/vfio/13"}},
		},
		"the plug-in's variable, not the author's": {
			wanted: []vmspec.HostDevice{gpu("0", "example.com/gpu")}, config: authors, want: []Device{{PCI, "0000:65:00.0", "/dev/vfio/12"}},
		},
		"nothing handed over": {
			wanted: []vmspec.HostDevice{gpu("0", "example.com/gpu"), generic("0", "example.com/stick")}, config: handed(nil),
			err: `spec.domain.devices.gpus[0]: the kubelet handed over no such device of the resource "example.com/gpu": its device plug-in must set one of ` +
				`PCI_RESOURCE_EXAMPLE_COM_GPU, MDEV_PCI_RESOURCE_EXAMPLE_COM_GPU, with an address for each device
spec.domain.devices.hostDevices[0]: the kubelet handed over no such device of the resource "example.com/stick": its device plug-in must set one of ` +
				`PCI_RESOURCE_EXAMPLE_COM_STICK, MDEV_PCI_RESOURCE_EXAMPLE_COM_STICK, USB_RESOURCE_EXAMPLE_COM_STICK, with an address for each device`,
		},
		"fewer than asked for": {
			wanted: []vmspec.HostDevice{gpu("0", "example.com/gpu"), gpu("1", "example.com/gpu")},
			config: handed([]string{"PCI_RESOURCE_EXAMPLE_COM_GPU=0000:65:00.0"}, "/dev/vfio/12"), err: "spec.domain.devices.gpus[1]: the kubelet handed over no such device",
		},
		"a stranger's variable alone": {
			wanted: []vmspec.HostDevice{gpu("0", "example.com/gpu")},
			config: handed([]string{"PCI_RESOURCE_EXAMPLE_COM_GPU=0000:3b:02.1"}, "/dev/vfio/vfio", "/dev/vfio/12"),
			err:    "spec.domain.devices.gpus[0]: pci device 0000:3b:02.1: the kubelet did not give /dev/vfio/13 to the container; its device plug-in must return that node",
		},
		"a volume at the group's path": {wanted: []vmspec.HostDevice{gpu("0", "example.com/gpu")}, config: renamed, err: "the kubelet did not give /dev/vfio/12"},
		"a stranger's USB device": {
			wanted: []vmspec.HostDevice{generic("0", "example.com/stick")}, config: handed([]string{"USB_RESOURCE_EXAMPLE_COM_STICK=2:7"}, "/dev/bus/usb/001/004"),
			err: "did not give /dev/bus/usb/002/007",
		},
		"a picture of a PCI device": {
			wanted: []vmspec.HostDevice{{Kind: vmspec.HostDeviceGPU, Path: "spec.gpus[0]", Resource: "example.com/gpu", Picture: &vmspec.Picture{Enabled: true, Explicit: true}}},
			config: authors, err: "spec.gpus[0]: virtualGPUOptions.display.enabled: the GPU is a pci device, and only a mediated device shows a picture",
		},
		"a device of the node's": {
			wanted: []vmspec.HostDevice{generic("0", "example.com/nic")}, config: handed([]string{"PCI_RESOURCE_EXAMPLE_COM_NIC=0000:00:1f.6"}, "/dev/vfio/14"),
			err: "PCI device 0000:00:1f.6 is bound to the driver e1000e; bind it to vfio-pci",
		},
		"a device without a driver": {
			wanted: []vmspec.HostDevice{generic("0", "example.com/nic")}, config: handed([]string{"PCI_RESOURCE_EXAMPLE_COM_NIC=0000:07:00.0"}),
			err: "PCI device 0000:07:00.0: find its driver",
		},
		"a path for an address": {
			wanted: []vmspec.HostDevice{generic("0", "example.com/nic")}, config: handed([]string{"PCI_RESOURCE_EXAMPLE_COM_NIC=../../x"}), err: `"../../x" is not a PCI address`,
		},
		"a path for a UUID": {
			wanted: []vmspec.HostDevice{gpu("0", "example.com/nic")}, config: handed([]string{"MDEV_PCI_RESOURCE_EXAMPLE_COM_NIC=../x"}), err: `"../x" is not the UUID`,
		},
		"a path for a USB device": {
			wanted: []vmspec.HostDevice{generic("0", "example.com/nic")}, config: handed([]string{"USB_RESOURCE_EXAMPLE_COM_NIC=1:../x"}), err: `"1:../x" is not the address of a USB device`,
		},
	} {
		t.Run(name, func(t *testing.T) { check(t, n, tt.wanted, tt.config, tt.want, tt.err) })
	}
}

func check(t *testing.T, n Node, wanted []vmspec.HostDevice, config *runtimeapi.ContainerConfig, want []Device, text string) {
	t.Helper()
	got, err := n.Find(sandboxID, wanted, config)
	if text != "" {
		if err == nil || !strings.Contains(err.Error(), text) {
			t.Errorf("error %v\nwant %s", err, text)
		}
		return
	}
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("devices (-want +got):\n%s", diff)
	}
}

// cdiFile describes devices as a DRA driver does: nodes, and a file with their metadata.
const cdiFile = `{"cdiVersion": "0.6.0", "kind": "gpu.example.com/claim",
	"containerEdits": {"env": ["USB_RESOURCE_EXAMPLE_COM_STICK=1:4"]},
	"devices": [
		{"name": "1-gpu", "containerEdits": {"deviceNodes": [{"path": "/dev/vfio/12"}], "mounts": [{"hostPath": "/plugins/1.json",
			"containerPath": "/var/run/kubernetes.io/dra-device-attributes/resourceclaimtemplates/pool/gpu/gpu.example.com-metadata.json"}]}},
		{"name": "2-vgpu", "containerEdits": {"deviceNodes": [{"path": "/dev/mine", "hostPath": "/dev/vfio/15"}], "mounts": [{"hostPath": "/plugins/2.json",
			"containerPath": "/var/run/kubernetes.io/dra-device-attributes/resourceclaims/shared-7/vgpu/gpu.example.com-metadata.json"}]}},
		{"name": "3-bare", "containerEdits": {"deviceNodes": [{"path": "/dev/vfio/13"}]}},
		{"name": "4-odd", "containerEdits": {"mounts": [{"hostPath": "/plugins/4.json",
			"containerPath": "/var/run/kubernetes.io/dra-device-attributes/resourceclaims/odd/one/gpu.example.com-metadata.json"}]}}]}`

func TestFindOfClaims(t *testing.T) {
	n := testNode(t)
	n.write(t, "/var/run/cdi/gpu.json", cdiFile)
	n.write(t, "/etc/cdi/broken.json", "{")
	n.write(t, "/plugins/1.json", `{"apiVersion": "metadata.resource.k8s.io/v9", "kind": "DeviceMetadata", "new": 1}
		{"apiVersion": "metadata.resource.k8s.io/v1alpha1", "kind": "DeviceMetadata", "requests": [{"name": "other", "devices": []},
			{"name": "gpu/big", "devices": [{"driver": "gpu.example.com", "pool": "node", "name": "gpu-0", "attributes": {"resource.kubernetes.io/pciBusID": {"string": "0000:65:00.0"}}}]}]}`)
	n.write(t, "/plugins/2.json", `{"apiVersion": "metadata.resource.k8s.io/v1alpha1", "kind": "DeviceMetadata", "requests": [{"name": "vgpu", "devices": [
		{"driver": "gpu.example.com", "pool": "node", "name": "vgpu-0", "attributes": {"resource.kubernetes.io/pciBusID": {"string": "0000:00:1f.6"}, "mdevUUID": {"string": "`+mdev+`"}}}]}]}`)
	n.write(t, "/plugins/4.json", `{"apiVersion": "metadata.resource.k8s.io/v1alpha1", "kind": "DeviceMetadata", "requests": [{"name": "one", "devices": [
		{"driver": "gpu.example.com", "pool": "node", "name": "odd", "attributes": {"model": {"string": "x"}}}]}]}`)
	claim := func(kind vmspec.HostDeviceKind, name string, template bool, request string) vmspec.HostDevice {
		return vmspec.HostDevice{Kind: kind, Path: "spec.field", ResourceClaim: &vmspec.DeviceClaim{Name: name, Template: template, Request: request}}
	}
	cdi := func(names ...string) *runtimeapi.ContainerConfig {
		c := new(runtimeapi.ContainerConfig)
		for _, name := range names {
			c.CDIDevices = append(c.CDIDevices, &runtimeapi.CDIDevice{Name: "gpu.example.com/claim=" + name})
		}
		return c
	}
	older := handed(nil, "/dev/bus/usb/001/004")
	older.Annotations = map[string]string{"cdi.k8s.io/plugin_1": "gpu.example.com/claim=3-bare"}
	for name, tt := range map[string]struct {
		wanted []vmspec.HostDevice
		config *runtimeapi.ContainerConfig
		want   []Device
		err    string
	}{
		"a claim of a template, and a claim's own": {
			wanted: []vmspec.HostDevice{claim(vmspec.HostDeviceGPU, "pool", true, "gpu"), claim(vmspec.HostDeviceGPU, "shared-7", false, "vgpu")},
			config: cdi("1-gpu", "2-vgpu"), want: []Device{{PCI, "0000:65:00.0", "/dev/vfio/12"}, {MDev, mdev, "/dev/vfio/15"}},
		},
		"a plug-in's CDI device":   {wanted: []vmspec.HostDevice{generic("0", "example.com/stick")}, config: older, want: []Device{{USB, "1:4", "/dev/bus/usb/001/004"}}},
		"another kind of claim":    {wanted: []vmspec.HostDevice{claim(vmspec.HostDeviceGPU, "pool", false, "gpu")}, config: cdi("1-gpu"), err: "0 files with device metadata are mounted at"},
		"no claim handed over":     {wanted: []vmspec.HostDevice{claim(vmspec.HostDeviceGPU, "pool", true, "gpu")}, config: cdi(), err: "spec.field: the kubelet handed over no such device of request"},
		"a driver without files":   {wanted: []vmspec.HostDevice{claim(vmspec.HostDeviceGPU, "pool", true, "gpu")}, config: cdi("3-bare"), err: "enable metadata in the ResourceClaim's DRA driver"},
		"a device without address": {wanted: []vmspec.HostDevice{claim(vmspec.HostDeviceGPU, "odd", false, "one")}, config: cdi("4-odd"), err: "neither the attribute mdevUUID nor resource.kubernetes.io/pciBusID"},
		"an unknown CDI device":    {wanted: []vmspec.HostDevice{gpu("0", "a.com/b")}, config: cdi("9"), err: `CDI device "gpu.example.com/claim=9": no file in /etc/cdi or /var/run/cdi describes it`},
	} {
		t.Run(name, func(t *testing.T) { check(t, n, tt.wanted, tt.config, tt.want, tt.err) })
	}
}

func TestFindOfNetworks(t *testing.T) {
	n := testNode(t)
	const dir = "/var/run/k8s.cni.cncf.io/devinfo/cni/sriov-"
	n.write(t, dir+sandboxID+"_net1", `{"type": "pci", "version": "1.1.0", "pci": {"pci-address": "0000:3b:02.1"}}`)
	n.write(t, dir+sandboxID+"_net2", `{"type": "vhost-user", "version": "1.1.0"}`)
	n.write(t, dir+"another-pod_net1", `{"type": "pci", "version": "1.1.0", "pci": {"pci-address": "0000:65:00.0"}}`)
	card := func(device string) []vmspec.HostDevice {
		return []vmspec.HostDevice{{Kind: vmspec.HostDeviceSRIOV, Path: "spec.domain.devices.interfaces[1]", Network: device}}
	}
	check(t, n, card("net1"), handed([]string{"PCIDEVICE_EXAMPLE_COM_VF=0000:65:00.0"}, "/dev/vfio/13"), []Device{{PCI, "0000:3b:02.1", "/dev/vfio/13"}}, "")
	check(t, n, card("net1"), handed(nil, "/dev/vfio/12"), nil, "spec.domain.devices.interfaces[1]: pci device 0000:3b:02.1: the kubelet did not give /dev/vfio/13")
	check(t, n, card("net2"), handed(nil, "/dev/vfio/13"), nil, "the kubelet handed over no such device for the network's interface net2")
	check(t, n, card("net3"), handed(nil, "/dev/vfio/13"), nil, "Multus wrote no device information")
	check(t, testNode(t), card("net1"), handed(nil, "/dev/vfio/13"), nil, "Multus wrote no device information")
}
