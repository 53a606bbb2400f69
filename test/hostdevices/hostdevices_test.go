package hostdevices

import (
	"encoding/json"
	"errors"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"gotest.tools/v3/golden"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
	kubevirt "kubevirt.io/api/core/v1"
	"sigs.k8s.io/yaml"

	"github.com/nodevirt/nodevirt/controller/manifest"
	"github.com/nodevirt/nodevirt/controller/pod"
	"github.com/nodevirt/nodevirt/shim/domain"
	"github.com/nodevirt/nodevirt/shim/fields"
	"github.com/nodevirt/nodevirt/shim/hostdevice"
	"github.com/nodevirt/nodevirt/shim/vmspec"
)

const (
	sandboxID = "0123456789abcdef"
	mdev      = "4b20d080-1b54-4048-85b3-a6a62d165c01"
	attrs     = "/var/run/kubernetes.io/dra-device-attributes/"
)

// TestManifests: the pod requests the devices, and the guest has those that the kubelet
// hands over.
func TestManifests(t *testing.T) {
	node := testNode(t)
	for name, given := range map[string]*runtimeapi.ContainerConfig{
		"gpu": handed([]string{"PCI_RESOURCE_NVIDIA_COM_GP102GL_TESLA_P40=0000:65:00.0", "MDEV_PCI_RESOURCE_NVIDIA_COM_GRID_T4-1Q=" + mdev},
			"/dev/vfio/vfio", "/dev/vfio/12", "/dev/vfio/15"),
		"usb":   handed([]string{"USB_RESOURCE_KUBEVIRT_IO_STORAGE=1:4,2:11"}, "/dev/bus/usb/001/004", "/dev/bus/usb/002/011"),
		"sriov": handed([]string{"PCIDEVICE_OPENSHIFT_IO_VFS=0000:3b:02.1"}, "/dev/vfio/vfio", "/dev/vfio/13", "/dev/vfio/14"),
		"dra":   handed(nil),
	} {
		t.Run(name, func(t *testing.T) {
			switch name {
			case "sriov":
				given.CDIDevices = []*runtimeapi.CDIDevice{{Name: "dra.example.com/claim=card"}}
			case "dra":
				given.CDIDevices = []*runtimeapi.CDIDevice{{Name: "dra.example.com/claim=gpu"}, {Name: "dra.example.com/claim=qat"}}
			}
			p := podOf(t, name)
			request, err := yaml.Marshal(map[string]any{
				"resources": p.Spec.Containers[0].Resources, "resourceClaims": p.Spec.ResourceClaims, "networks": p.Annotations["k8s.v1.cni.cncf.io/networks"],
			})
			if err != nil {
				t.Fatal(err)
			}
			golden.Assert(t, string(request), name+".pod.yaml")
			golden.Assert(t, domainOf(t, node, p, given), name+".xml")
			given.Envs, given.Devices = nil, nil
			if _, err := node.Find(sandboxID, specOf(t, p, given).HostDevices, given); err == nil && name != "dra" {
				t.Error("the guest has devices that the kubelet did not hand over")
			}
		})
	}
}

// podOf returns the pod of a manifest that the tests of admission have.
func podOf(t *testing.T, name string) *corev1.Pod {
	t.Helper()
	text, err := os.ReadFile("../../controller/admission/testdata/taken/vmi-" + name + ".yaml")
	if err != nil {
		t.Fatal(err)
	}
	var tree map[string]any
	if err := yaml.Unmarshal(text, &tree); err != nil {
		t.Fatal(err)
	}
	var spec any
	if err := fields.Decode(tree["spec"], &spec); err != nil { // keeps whole numbers
		t.Fatal(err)
	}
	sound, problems := manifest.CheckVMI(field.NewPath("spec"), spec)
	if len(problems) > 0 {
		t.Fatal(problems)
	}
	vmi := &kubevirt.VirtualMachineInstance{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name, UID: "uid"}, Spec: *sound}
	p, err := pod.New(vmi, nil, nil, pod.Options{RuntimeClass: "vm", Surroundings: pod.Surroundings{
		NetworkResources: map[string]string{"sriov/sriov-network": "openshift.io/vfs"},
	}})
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// specOf returns the VM of a pod's container as the node reads it.
func specOf(t *testing.T, p *corev1.Pod, given *runtimeapi.ContainerConfig) vmspec.Spec {
	t.Helper()
	given.Metadata = &runtimeapi.ContainerMetadata{Name: pod.Container}
	u, err := vmspec.FromCRI(&runtimeapi.PodSandboxConfig{
		Metadata:    &runtimeapi.PodSandboxMetadata{Name: p.Name, Namespace: p.Namespace, Uid: "u"},
		Annotations: p.Annotations, Hostname: p.Spec.Hostname,
	}, given)
	if err != nil {
		t.Fatal(err)
	}
	return u.Resolve(vmspec.Facts{Mode: vmspec.ModeFile})
}

func domainOf(t *testing.T, node hostdevice.Node, p *corev1.Pod, given *runtimeapi.ContainerConfig) string {
	t.Helper()
	spec := specOf(t, p, given)
	devices, err := node.Find(sandboxID, spec.HostDevices, given)
	if err != nil {
		t.Fatal(err)
	}
	desc := domain.Description{
		Name: "nodevirt-0123456789ab", UUID: "8c2f2a35-1d0e-4f9c-9a54-2a3c4f0f7a10", ContainerID: "0123456789abcdef",
		PodNamespace: p.Namespace, PodName: p.Name, ContainerName: pod.Container,
		Spec: spec, HostDevices: devices, Accelerator: domain.KVM, Emulator: "/usr/bin/qemu-system-x86_64", UID: 64001, GID: 64002,
		Disks:         []domain.Disk{{Layers: []domain.Layer{{Format: "qcow2", Path: "/run/vm/root.qcow2", FDGroup: "root-0"}}}},
		ConsoleSocket: "/run/vm/console.sock", ConsoleLog: "/run/vm/console.log", AgentSocket: "/run/vm/agent.sock", DisplaySocket: "/run/vm/display/vnc",
	}
	for _, card := range spec.Interfaces {
		desc.NICs = append(desc.NICs, domain.NIC{Name: card.Name, Tap: "tap0", MAC: net.HardwareAddr{2, 0, 0, 0, 0, 9}})
	}
	text, err := domain.XML(desc)
	if err != nil {
		t.Fatal(err)
	}
	return text + "\n"
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

// testNode is a node with PCI devices bound to vfio-pci, a mediated device, a network of
// Multus and a DRA driver.
func testNode(t *testing.T) hostdevice.Node {
	t.Helper()
	node := hostdevice.Node{Root: t.TempDir()}
	write := func(path, text string) {
		path = filepath.Join(node.Root, path)
		if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o700), os.WriteFile(path, []byte(text), 0o600)); err != nil {
			t.Fatal(err)
		}
	}
	link := func(to, path string) {
		path = filepath.Join(node.Root, path)
		if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o700), os.Symlink(to, path)); err != nil {
			t.Fatal(err)
		}
	}
	for address, group := range map[string]string{"0000:65:00.0": "12", "0000:3b:02.1": "13", "0000:3b:02.2": "14", "0000:1a:00.0": "16"} {
		link("../../drivers/vfio-pci", "/sys/bus/pci/devices/"+address+"/driver")
		link("../../groups/"+group, "/sys/bus/pci/devices/"+address+"/iommu_group")
	}
	link("../../groups/15", "/sys/bus/mdev/devices/"+mdev+"/iommu_group")
	write("/var/run/k8s.cni.cncf.io/devinfo/cni/sriov-network-"+sandboxID+"_net1", `{"type": "pci", "version": "1.1.0", "pci": {"pci-address": "0000:3b:02.1"}}`)
	type request struct{ device, group, folder, name, attribute, value string }
	var devices []map[string]any
	for r := range slices.Values([]request{
		{"gpu", "12", "resourceclaimtemplates/pgpu", "gpu", "resource.kubernetes.io/pciBusID", "0000:65:00.0"},
		{"qat", "16", "resourceclaims/accelerators-7", "qat", "resource.kubernetes.io/pciBusID", "0000:1a:00.0"},
		{"card", "14", "resourceclaims/shared-cards", "card", "resource.kubernetes.io/pciBusID", "0000:3b:02.2"},
	}) {
		file := "/plugins/" + r.device + ".json"
		write(file, encode(t, map[string]any{
			"apiVersion": "metadata.resource.k8s.io/v1alpha1", "kind": "DeviceMetadata", "requests": []any{map[string]any{"name": r.name, "devices": []any{
				map[string]any{"driver": "dra.example.com", "pool": "node", "name": r.device, "attributes": map[string]any{r.attribute: map[string]any{"string": r.value}}},
			}}},
		}))
		devices = append(devices, map[string]any{"name": r.device, "containerEdits": map[string]any{
			"deviceNodes": []any{map[string]any{"path": "/dev/vfio/" + r.group}},
			"mounts":      []any{map[string]any{"hostPath": file, "containerPath": attrs + r.folder + "/" + r.name + "/dra.example.com-metadata.json"}},
		}})
	}
	write("/var/run/cdi/dra.json", encode(t, map[string]any{"cdiVersion": "0.6.0", "kind": "dra.example.com/claim", "devices": devices}))
	return node
}

func encode(t *testing.T, value any) string {
	t.Helper()
	text, err := json.Marshal(value)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}
