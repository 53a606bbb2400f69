package domain

import (
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/uuid"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/validation/field"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
	kubevirt "kubevirt.io/api/core/v1"
	"libvirt.org/go/libvirt"
	kjson "sigs.k8s.io/json"
	"sigs.k8s.io/yaml"

	"github.com/nodevirt/nodevirt/controller/config"
	"github.com/nodevirt/nodevirt/controller/manifest"
	"github.com/nodevirt/nodevirt/controller/pod"
	"github.com/nodevirt/nodevirt/shim/fields"
	"github.com/nodevirt/nodevirt/shim/hostcpu"
	"github.com/nodevirt/nodevirt/shim/hostdevice"
	"github.com/nodevirt/nodevirt/shim/uefi"
	"github.com/nodevirt/nodevirt/shim/vmspec"
)

const (
	// randomSpecs is how many of each seed the tests make, and leastTaken how many of them admission must take.
	randomSpecs = 500
	randomSeed  = 1
	leastTaken  = 200
)

// TestRandomSpecs makes random specs of the fields that a VM may have. Admission refuses each
// by the path of a field, or the pod, the node and libvirt take it.
func TestRandomSpecs(t *testing.T) {
	// The driver of tests needs no libvirtd, and checks the XML by the schema and as all drivers do.
	conn, err := libvirt.NewConnect("test:///default")
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	taken := 0
	for n := range uint64(randomSpecs) {
		g := generator{rand.New(rand.NewPCG(randomSeed, n))}
		tree := g.spec()
		text, err := yaml.Marshal(tree)
		if err != nil {
			t.Fatal(err)
		}
		spec, problems := manifest.CheckVMI(field.NewPath("spec"), decodedSpec(t, tree))
		for _, p := range problems {
			if !strings.HasPrefix(p.Field, "spec.") {
				t.Errorf("seed %d, spec %d: a refusal without a field: %v", randomSeed, n, p)
			}
		}
		if spec == nil {
			if len(problems) == 0 {
				t.Errorf("seed %d, spec %d: refused without a reason", randomSeed, n)
			}
			continue
		}
		taken++
		if err := defines(conn, spec); err != nil {
			t.Errorf("seed %d, spec %d: admission takes what fails later: %v\n%s", randomSeed, n, err, text)
		}
	}
	t.Logf("admission takes %d of %d", taken, randomSpecs)
	if taken < leastTaken {
		t.Errorf("admission takes %d of %d specs: the test shows little", taken, randomSpecs)
	}
}

func decodedSpec(t *testing.T, tree any) any {
	t.Helper()
	text, err := json.Marshal(tree)
	if err != nil {
		t.Fatal(err)
	}
	var decoded any
	if err := kjson.UnmarshalCaseSensitivePreserveInts(text, &decoded); err != nil {
		t.Fatal(err)
	}
	return decoded
}

// defines takes a spec through its pod, the node's translation and libvirt.
func defines(conn *libvirt.Connect, spec *kubevirt.VirtualMachineInstanceSpec) error {
	desc, err := describes(spec)
	if err != nil || desc == nil {
		return err
	}
	text, err := XML(*desc)
	if err != nil {
		return err
	}
	dom, err := conn.DomainDefineXMLFlags(text, libvirt.DOMAIN_DEFINE_VALIDATE)
	if err != nil {
		return fmt.Errorf("%w\n%s", err, text)
	}
	defer dom.Free()
	return dom.Undefine()
}

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
	for _, table := range spec.Firmware.Tables {
		desc.ACPITables = append(desc.ACPITables, ACPITable{Signature: table.Signature, Path: "/run/vm/" + table.Key()})
	}
	return desc
}

// generator makes specs.
type generator struct{ *rand.Rand }

// object is a JSON object.
type object = map[string]any

func pick[T any](g generator, from []T) T { return from[g.IntN(len(from))] }

// spec returns a spec whose disks, volumes and networks fit together, with random fields.
func (g generator) spec() object {
	devices := object{}
	spec := object{"domain": object{"devices": devices, "memory": object{"guest": pick(g, []string{"64Mi", "128Mi", "1Gi", "2Gi"})}}}
	var disks, volumes []any
	if g.IntN(2) == 0 {
		disks = append(disks, object{"name": "root", "disk": object{}})
		volumes = append(volumes, object{"name": "root", "containerDisk": object{"image": "example.com/root:1"}})
	}
	for i := range g.IntN(5) {
		disk, volume := g.disk(fmt.Sprint("disk", i))
		if disk != nil {
			disks = append(disks, disk)
		}
		volumes = append(volumes, volume)
	}
	if len(volumes) > 0 {
		devices["disks"], spec["volumes"] = disks, volumes
	}
	if disks == nil {
		delete(devices, "disks")
	}
	if g.IntN(2) == 0 {
		g.networks(spec, devices)
	}
	rows := vmspec.Supported().Rows
	for range g.IntN(12) {
		row := rows[g.IntN(len(rows))]
		if value, ok := g.value(row.Takes); ok && !strings.HasPrefix(row.Path, "volumes") && !strings.HasPrefix(row.Path, "networks") {
			g.set(spec, strings.Split(row.Path, "."), value)
		}
	}
	g.complete(spec["domain"].(object))
	return spec
}

// complete adds to most specs what their fields need.
func (g generator) complete(domain object) {
	if g.IntN(8) == 0 {
		return
	}
	devices := domain["devices"].(object)
	for _, name := range []string{"watchdog", "sound"} {
		if device, ok := devices[name].(object); ok && device["name"] == nil {
			device["name"] = name
		}
	}
	if w, ok := devices["watchdog"].(object); ok && w["i6300esb"] == nil {
		w["i6300esb"] = object{}
	}
	if f, ok := domain["firmware"].(object); ok {
		if kernel, ok := f["kernelBoot"].(object); ok {
			kernel["container"] = object{"kernelPath": "/boot/vmlinuz"}
		}
		if loader, ok := f["bootloader"].(object); ok && loader["efi"] != nil {
			delete(loader, "bios")
			domain["features"] = object{"smm": object{}}
		}
	}
	if cpu, ok := domain["cpu"].(object); ok {
		if cpu["dedicatedCpuPlacement"] == true || cpu["numa"] != nil || cpu["realtime"] != nil || cpu["isolateEmulatorThread"] == true {
			cpu["dedicatedCpuPlacement"], cpu["cores"] = true, 2
			domain["memory"].(object)["hugepages"] = object{"pageSize": "2Mi"}
			cpu["numa"] = object{"guestMappingPassthrough": object{}}
			delete(domain, "resources")
		}
	}
}

// disk returns a volume and its disk; some volumes have none.
func (g generator) disk(name string) (disk, volume object) {
	kind := pick(g, []string{
		"containerDisk", "containerDisk", "emptyDisk", "configMap", "secret", "cloudInitNoCloud", "persistentVolumeClaim",
		"ephemeral", "downwardAPI", "serviceAccount", "sysprep", "hostDisk", "downwardMetrics", "cloudInitConfigDrive",
	})
	source := map[string]object{
		"containerDisk": {"image": "example.com/" + name + ":1"}, "emptyDisk": {"capacity": "1Gi"},
		"configMap": {"name": "a"}, "secret": {"secretName": "a"}, "cloudInitNoCloud": {"userData": "#!/bin/sh"},
		"persistentVolumeClaim": {"claimName": pick(g, []string{"block", "file"})},
		"ephemeral":             {"persistentVolumeClaim": object{"claimName": "file"}},
		"downwardAPI":           {"fields": []any{object{"path": "labels", "fieldRef": object{"fieldPath": "metadata.labels"}}}},
		"serviceAccount":        {"serviceAccountName": "a"}, "sysprep": {"configMap": object{"name": "a"}},
		"hostDisk": {"path": "/srv/disk.img", "type": "Disk"}, "downwardMetrics": {},
		"cloudInitConfigDrive": {"userData": "#!/bin/sh"},
	}[kind]
	volume = object{"name": name, kind: source}
	as := pick(g, []string{"disk", "disk", "disk", "cdrom"})
	if source["claimName"] == "block" && g.IntN(2) == 0 {
		as = "lun"
	}
	device := object{}
	if g.IntN(2) == 0 && kind != "downwardMetrics" {
		device["bus"] = pick(g, map[string][]string{
			"disk": {"virtio", "sata", "scsi", "usb"}, "cdrom": {"sata", "scsi"}, "lun": {"scsi"},
		}[as])
	}
	return object{"name": name, as: device}, volume
}

func (g generator) networks(spec, devices object) {
	var cards, networks []any
	for i := range 1 + g.IntN(3) {
		name, source, binding := fmt.Sprint("net", i), object{"multus": object{"networkName": fmt.Sprint("n", i)}}, "bridge"
		if i == 0 {
			source, binding = object{"pod": object{}}, pick(g, []string{"bridge", "masquerade"})
		}
		card := object{"name": name, binding: object{}}
		if g.IntN(2) == 0 {
			card["model"] = pick(g, []string{"virtio", "e1000", "e1000e", "rtl8139", "virtio-transitional"})
		}
		cards, networks = append(cards, card), append(networks, source)
		source["name"] = name
	}
	devices["interfaces"], spec["networks"] = cards, networks
}

// candidates are values of fields. The refusal of one lists the values of an enumeration.
func (g generator) candidates() []any {
	return []any{
		true, false, object{},
		int64(0), int64(1), int64(2), int64(3), int64(4), int64(16), int64(512), int64(4096), int64(9000),
		"a", "b-1", "Nehalem", "avx2", "aes", "0000:05:00.0", "0000:00:1f.7", "02:00:00:00:00:01", "1Gi", "64Mi", "500m",
		"5d307ca9-b3ef-428c-8861-06e72d69f223", "/boot/vmlinuz", "console=ttyS0", "example.com/kernel:1", "pc", "pc-q35-7.2",
		"pc-i440fx-7.2", "10.1.0.0/24", "fd10:1::/120", "Europe/Berlin", "0-1", "host-model", "host-passthrough", "2Mi",
	}
}

// quoted finds the values that a refusal lists.
var quoted = regexp.MustCompile(`"([^"]+)"`)

// value returns a value that a row takes; false if no candidate is one.
func (g generator) value(takes fields.Takes) (any, bool) {
	all := g.candidates()
	g.Shuffle(len(all), func(i, j int) { all[i], all[j] = all[j], all[i] })
	for _, candidate := range all {
		problem := takes(field.NewPath("x"), candidate)
		if problem == nil {
			return candidate, true
		}
		if problem.Type != field.ErrorTypeNotSupported {
			continue
		}
		if values := quoted.FindAllStringSubmatch(problem.Detail, -1); len(values) > 0 {
			return pick(g, values)[1], true
		}
	}
	return nil, false
}

// set sets a field below an object. Of a list it sets that of a random element, and makes an
// element only if elements need not fit to others.
func (g generator) set(at object, steps []string, value any) {
	name, isList := strings.CutSuffix(steps[0], "[]")
	if !isList {
		if len(steps) == 1 {
			if _, has := at[name]; !has {
				at[name] = value
			}
			return
		}
		below, ok := at[name].(object)
		if !ok {
			below = object{}
			at[name] = below
		}
		g.set(below, steps[1:], value)
		return
	}
	list, _ := at[name].([]any)
	if len(list) == 0 {
		if slices.Contains([]string{"disks", "interfaces", "filesystems", "volumes", "networks", "accessCredentials"}, name) {
			return
		}
		list = []any{object{"name": "a" + fmt.Sprint(g.IntN(3))}}
		if name == "panicDevices" {
			list = []any{object{}}
		}
		at[name] = list
	}
	if element, ok := pick(g, list).(object); ok && len(steps) > 1 {
		g.set(element, steps[1:], value)
	}
}
