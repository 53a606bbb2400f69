package domain

import (
	"errors"
	"fmt"
	"net"
	"slices"
	"strings"

	"github.com/google/uuid"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
	kubevirt "kubevirt.io/api/core/v1"

	"github.com/nodevirt/nodevirt/controller/config"
	"github.com/nodevirt/nodevirt/controller/manifest"
	"github.com/nodevirt/nodevirt/controller/pod"
	"github.com/nodevirt/nodevirt/shim/hostcpu"
	"github.com/nodevirt/nodevirt/shim/hostdevice"
	"github.com/nodevirt/nodevirt/shim/uefi"
	"github.com/nodevirt/nodevirt/shim/vmspec"
)

// describes takes a spec through its pod and the node's translation; nil for one that no node has room for, or that
// the node refuses.
func describes(spec *kubevirt.VirtualMachineInstanceSpec) (*Description, error) {
	vmi := &kubevirt.VirtualMachineInstance{Spec: *spec}
	vmi.Name, vmi.Namespace, vmi.UID = "random", "default", types.UID(uuid.NewString())
	block, file := corev1.PersistentVolumeBlock, corev1.PersistentVolumeFilesystem
	pvcs := pod.PVCObjects{}
	for name, mode := range map[string]*corev1.PersistentVolumeMode{"block": &block, "file": &file} {
		pvcs[name] = &corev1.PersistentVolumeClaim{Spec: corev1.PersistentVolumeClaimSpec{
			VolumeMode: mode, AccessModes: []corev1.PersistentVolumeAccessMode{corev1.ReadWriteMany},
		}}
	}
	p, err := pod.New(vmi, pvcs, nil, pod.Options{
		RuntimeClass: "vm", StubImage: "example.com/stub:1",
		Surroundings: pod.Surroundings{
			StatePVC: "persistent-state-for-random",
			Config:   config.Config{Flags: config.Flags{Gates: manifest.Gates{HostDisks: true, DownwardMetrics: true}}},
		},
	})
	if err != nil {
		return nil, fmt.Errorf("pod: %w", err)
	}
	if r := p.Spec.Containers[0].Resources.Requests; r.Cpu().Value() > vmspec.MaxVCPUs {
		return nil, nil // no node has so many CPUs: the scheduler says so
	}
	sandbox, container := requests(p)
	if err := vmspec.ValidateSandbox(sandbox); err != nil {
		return nil, fmt.Errorf("the node refuses the sandbox: %w", err)
	}
	unresolved, err := vmspec.FromCRI(sandbox, container)
	if err != nil {
		return nil, fmt.Errorf("the node refuses the container: %w", err)
	}
	desc := randomDomain(unresolved.Resolve(vmspec.Facts{Mode: vmspec.ModeFile}), container)
	if l := desc.Spec.LaunchSecurity; l != nil {
		if err := (Encryption{}).Offers(*l); !refusal(err) {
			return nil, fmt.Errorf("a node without encryption: %w", err)
		}
		return nil, nil
	}
	return &desc, nil
}

// refusal reports whether an error says by the path of a field that the node can't run a VM.
func refusal(err error) bool {
	return errors.Is(err, ErrUnsupported) && strings.Contains(err.Error(), "spec.")
}

// requests are what a kubelet sends of a pod.
func requests(p *corev1.Pod) (*runtimeapi.PodSandboxConfig, *runtimeapi.ContainerConfig) {
	sandbox := &runtimeapi.PodSandboxConfig{
		Metadata:    &runtimeapi.PodSandboxMetadata{Name: p.Name, Namespace: p.Namespace, Uid: "u"},
		Annotations: p.Annotations, Hostname: p.Spec.Hostname,
	}
	c := p.Spec.Containers[0]
	linux := &runtimeapi.LinuxContainerResources{MemoryLimitInBytes: c.Resources.Limits.Memory().Value()}
	if cpu := c.Resources.Limits.Cpu().MilliValue(); cpu > 0 {
		linux.CpuPeriod, linux.CpuQuota = 100_000, cpu*100
	}
	if c.Resources.Limits.Cpu().MilliValue() == c.Resources.Requests.Cpu().MilliValue() {
		linux.CpusetCpus = "0-31"
	}
	for name, page := range map[corev1.ResourceName]string{"hugepages-2Mi": "2MB", "hugepages-1Gi": "1GB"} {
		if q, ok := c.Resources.Limits[name]; ok {
			linux.HugepageLimits = append(linux.HugepageLimits, &runtimeapi.HugepageLimit{PageSize: page, Limit: uint64(q.Value())})
		}
	}
	container := &runtimeapi.ContainerConfig{
		Metadata: &runtimeapi.ContainerMetadata{Name: c.Name},
		Image:    &runtimeapi.ImageSpec{Image: c.Image, UserSpecifiedImage: c.Image},
		Linux:    &runtimeapi.LinuxContainerConfig{Resources: linux},
	}
	for _, m := range c.VolumeMounts {
		mount := &runtimeapi.Mount{ContainerPath: m.MountPath, Readonly: m.ReadOnly}
		at := slices.IndexFunc(p.Spec.Volumes, func(v corev1.Volume) bool { return v.Name == m.Name })
		switch v := p.Spec.Volumes[at]; {
		case v.Image != nil:
			mount.Image = &runtimeapi.ImageSpec{Image: v.Image.Reference}
			mount.ImageSubPath = m.SubPath
		case v.Secret != nil:
			mount.HostPath = "/var/lib/kubelet/pods/u/volumes/kubernetes.io~secret/" + m.Name
		case v.ConfigMap != nil:
			mount.HostPath = "/var/lib/kubelet/pods/u/volumes/kubernetes.io~configmap/" + m.Name
		case v.DownwardAPI != nil:
			mount.HostPath = "/var/lib/kubelet/pods/u/volumes/kubernetes.io~downward-api/" + m.Name
		case v.Projected != nil:
			mount.HostPath = "/var/lib/kubelet/pods/u/volumes/kubernetes.io~projected/" + m.Name
		default:
			mount.HostPath = "/srv/" + m.Name
		}
		container.Mounts = append(container.Mounts, mount)
	}
	if _, given := c.Resources.Limits[vmspec.VSOCKResource]; given {
		container.Devices = append(container.Devices, &runtimeapi.Device{ContainerPath: "/dev/vhost-vsock", HostPath: "/dev/vhost-vsock"})
	}
	for _, d := range c.VolumeDevices {
		container.Devices = append(container.Devices, &runtimeapi.Device{
			ContainerPath: d.DevicePath, HostPath: "/dev/null", Permissions: "rwm",
		})
	}
	return sandbox, container
}

// randomDomain describes a VM as a node would.
func randomDomain(spec vmspec.Spec, c *runtimeapi.ContainerConfig) Description {
	desc := plainDomain()
	desc.Spec, desc.Accelerator, desc.Disks, desc.NICs = spec, TCG, nil, nil
	desc.Name, desc.UUID = "nodevirt-random", uuid.NewString()
	desc.AgentSocket, desc.DisplaySocket = "/run/vm/agent.sock", "/run/vm/vnc/vnc.sock"
	desc.TPMSocket = "/run/vm/tpm.sock"
	desc.CPUSet = c.GetLinux().GetResources().GetCpusetCpus()
	for id := range 32 {
		desc.NodeCPUs = append(desc.NodeCPUs, hostcpu.CPU{ID: id, Core: id / 2 * 2, Node: id / 16})
	}
	for _, disk := range spec.Disks {
		layer := Layer{Format: "raw", Path: "/run/vm/" + disk.Name} // the driver of tests takes no descriptors
		if disk.Block {
			layer = Layer{Format: "raw", Path: disk.Host, Block: true}
		}
		layer.ReadOnly = disk.ReadOnly
		if disk.Source == vmspec.SourceDrive {
			desc.Disks = append(desc.Disks, Disk{})
			continue
		}
		desc.Disks = append(desc.Disks, Disk{Layers: []Layer{layer}})
	}
	for i, card := range spec.Interfaces {
		desc.NICs = append(desc.NICs, NIC{Name: card.Name, Tap: fmt.Sprint("tap", i), MAC: net.HardwareAddr{2, 0, 0, 0, 1, byte(i)}})
	}
	if spec.VSOCK {
		desc.VSOCKCID = 64001
	}
	desc.MetricsSocket = "/run/vm/metrics.sock"
	for i := range spec.HostDevices {
		desc.HostDevices = append(desc.HostDevices, hostdevice.Device{Kind: hostdevice.PCI, Address: fmt.Sprintf("0000:65:%02x.0", i), Node: "/dev/vfio/12"})
	}
	for i := range spec.Filesystems {
		desc.FilesystemSockets = append(desc.FilesystemSockets, fmt.Sprint("/run/vm/fs", i))
	}
	if spec.Firmware.Kernel != nil {
		desc.Kernel, desc.Initrd = "/run/vm/kernel", "/run/vm/initrd"
	}
	if f := spec.Firmware.UEFI; f != nil {
		desc.UEFI = &uefi.Firmware{
			Code: "/usr/share/OVMF/OVMF_CODE_4M.fd", Variables: "/usr/share/OVMF/OVMF_VARS_4M.fd", SMM: f.SecureBoot,
		}
		desc.UEFIVariables = "/run/vm/uefi-variables"
	}
	if spec.Arch() == vmspec.ARM64 {
		arm := armDomain(TCG)
		desc.Emulator, desc.UEFI = arm.Emulator, arm.UEFI
	}
	if spec.Firmware.OnSerial {
		desc.Ignition = "/run/vm/ignition"
	}
	for _, table := range spec.Firmware.Tables {
		desc.ACPITables = append(desc.ACPITables, ACPITable{Signature: table.Signature, Path: "/run/vm/" + table.Key()})
	}
	return desc
}
