package pod_test

import (
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"gotest.tools/v3/golden"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
	kubevirt "kubevirt.io/api/core/v1"
	"sigs.k8s.io/yaml"

	"github.com/nodevirt/nodevirt/controller/config"
	"github.com/nodevirt/nodevirt/controller/manifest"
	"github.com/nodevirt/nodevirt/controller/pod"
	"github.com/nodevirt/nodevirt/shim/vmspec"
)

// TestNew makes the pod of each instance in testdata, and shows it to the node's
// own translation, which must take it.
func TestNew(t *testing.T) {
	files, err := filepath.Glob("testdata/*.vmi.yaml")
	if err != nil || len(files) == 0 {
		t.Fatal(files, err)
	}
	for _, file := range files {
		name := strings.TrimSuffix(filepath.Base(file), ".vmi.yaml")
		t.Run(name, func(t *testing.T) {
			p, err := pod.New(read(t, name), pvcObjects(t), networkDisks(t, name), pod.Options{
				Surroundings: pod.Surroundings{
					StatePVC: "persistent-state-for-state-abcde",
					Config: config.Config{
						Flags: config.Flags{Gates: manifest.Gates{HostDisks: true, DownwardMetrics: true, HookSidecars: true}}, Given: registrations(),
					},
					NetworkResources: map[string]string{"lan": "macvtap.network.kubevirt.io/lan"},
				},
				RuntimeClass: "vm", StubImage: "registry.example.com/stub:1",
			})
			if err != nil {
				t.Fatal(err)
			}
			text, err := yaml.Marshal(p)
			if err != nil {
				t.Fatal(err)
			}
			golden.Assert(t, string(text), name+".pod.yaml")
			sandbox := &runtimeapi.PodSandboxConfig{
				Metadata:    &runtimeapi.PodSandboxMetadata{Name: p.Name, Namespace: p.Namespace, Uid: "u"},
				Annotations: p.Annotations, Hostname: p.Spec.Hostname,
			}
			if err := vmspec.ValidateSandbox(sandbox); err != nil {
				t.Errorf("a node refuses it: %v", err)
			}
		})
	}
}

// registrations are network binding plug-ins in the configuration of the object KubeVirt.
func registrations() kubevirt.KubeVirtConfiguration {
	return kubevirt.KubeVirtConfiguration{NetworkConfiguration: &kubevirt.NetworkConfiguration{Binding: map[string]kubevirt.InterfaceBindingPlugin{
		"macvtap": {DomainAttachmentType: kubevirt.Tap, Migration: &kubevirt.InterfaceBindingMigration{}},
		"l2": {
			DomainAttachmentType: kubevirt.ManagedTap, NetworkAttachmentDefinition: "plugins/l2", SidecarImage: "example.com/l2:1",
			ComputeResourceOverhead: &kubevirt.ResourceRequirementsWithoutClaims{
				Requests: corev1.ResourceList{corev1.ResourceMemory: resource.MustParse("10Mi")},
			},
		},
	}}}
}

// pvcObjects are the PVCs of the instances in testdata.
func pvcObjects(t *testing.T) pod.PVCObjects {
	t.Helper()
	all := pod.PVCObjects{}
	for name, text := range map[string]string{
		"block":  `{"spec": {"volumeMode": "Block", "resources": {"requests": {"storage": "1Gi"}}}}`,
		"files":  `{"spec": {"volumeMode": "Filesystem", "resources": {"requests": {"storage": "1Gi"}}}, "status": {"capacity": {"storage": "2Gi"}}}`,
		"iso":    `{"spec": {"resources": {"requests": {"storage": "1Gi"}}}}`,
		"shared": `{"spec": {"volumeMode": "Block"}}`,
		"alone":  `{"spec": {"accessModes": ["ReadWriteOncePod"], "resources": {"requests": {"storage": "1Gi"}}}}`,
		"new": `{"metadata": {"annotations": {"nodevirt.io/disk-origin": "registry.example.com/guest:1"}},
			"spec": {"resources": {"requests": {"storage": "1Gi"}}}}`,
		"thick": `{"metadata": {"annotations": {"cdi.kubevirt.io/storage.preallocation": "true"}},
			"spec": {"resources": {"requests": {"storage": "1Gi"}}}}`,
		"filled": `{"metadata": {"annotations": {"nodevirt.io/disk-origin": "registry.example.com/guest:1", "nodevirt.io/disk-filled": "true"}},
			"spec": {"volumeMode": "Block"}}`,
		"san": `{"spec": {"volumeMode": "Block"}}`,
	} {
		pvc := new(corev1.PersistentVolumeClaim)
		if err := yaml.UnmarshalStrict([]byte(text), pvc); err != nil {
			t.Fatal(err)
		}
		all[name] = pvc
	}
	return all
}

func read(t *testing.T, name string) *kubevirt.VirtualMachineInstance {
	t.Helper()
	vmi := new(kubevirt.VirtualMachineInstance)
	if err := yaml.UnmarshalStrict(golden.Get(t, name+".vmi.yaml"), vmi); err != nil {
		t.Fatal(err)
	}
	return vmi
}

func TestRefused(t *testing.T) {
	for name, tt := range map[string]struct {
		change func(*kubevirt.VirtualMachineInstance)
		want   string
	}{
		"unsupported field": {
			func(vmi *kubevirt.VirtualMachineInstance) {
				vmi.Spec.Domain.Devices.GPUs = []kubevirt.GPU{{Name: "a"}}
			},
			"spec.domain.devices.gpus[0].deviceName: Required value",
		},
		"the controller's annotation": {
			func(vmi *kubevirt.VirtualMachineInstance) {
				vmi.Annotations = map[string]string{vmspec.AnnotationVMI: "{}"}
			},
			"metadata.annotations[nodevirt.io/vmi]: not among those",
		},
		"an unregistered plug-in": {
			func(vmi *kubevirt.VirtualMachineInstance) {
				vmi.Spec.Networks = []kubevirt.Network{*kubevirt.DefaultPodNetwork()}
				vmi.Spec.Domain.Devices.Interfaces = []kubevirt.Interface{{Name: "default", Binding: &kubevirt.PluginBinding{Name: "passt"}}}
			},
			`network binding plug-in "passt" is not registered`,
		},
		"networks twice": {
			func(vmi *kubevirt.VirtualMachineInstance) {
				vmi.Annotations = map[string]string{"k8s.v1.cni.cncf.io/networks": "other"}
				vmi.Spec.Networks = []kubevirt.Network{{Name: "a", NetworkSource: kubevirt.NetworkSource{
					Multus: &kubevirt.MultusNetwork{NetworkName: "a"}}}}
				vmi.Spec.Domain.Devices.Interfaces = []kubevirt.Interface{{Name: "a"}}
			},
			"metadata.annotations[k8s.v1.cni.cncf.io/networks]: spec.networks says it",
		},
		"default network twice": {
			func(vmi *kubevirt.VirtualMachineInstance) {
				vmi.Annotations = map[string]string{"v1.multus-cni.io/default-network": "other"}
				vmi.Spec.Networks = []kubevirt.Network{{Name: "a", NetworkSource: kubevirt.NetworkSource{
					Multus: &kubevirt.MultusNetwork{NetworkName: "a", Default: true}}}}
				vmi.Spec.Domain.Devices.Interfaces = []kubevirt.Interface{{Name: "a"}}
			},
			"metadata.annotations[v1.multus-cni.io/default-network]: spec.networks[0] says it",
		},
		"no disk": {
			func(vmi *kubevirt.VirtualMachineInstance) {
				vmi.Spec.Volumes, vmi.Spec.Domain.Devices.Disks = nil, nil
			},
			"spec.volumes: no containerDisk",
		},
		"no PVC": {
			func(vmi *kubevirt.VirtualMachineInstance) { addPVC(vmi, "missing", kubevirt.DiskDevice{}) },
			"volume pvc: PVC missing does not exist",
		},
		"a lun in a file system": {
			func(vmi *kubevirt.VirtualMachineInstance) {
				addPVC(vmi, "files", kubevirt.DiskDevice{LUN: &kubevirt.LunTarget{}})
			},
			"volume pvc: PVC files has volumeMode Filesystem, and a lun needs Block; use disk",
		},
		"a shareable disk on a PVC of one pod": {
			func(vmi *kubevirt.VirtualMachineInstance) {
				yes := true
				addPVC(vmi, "alone", kubevirt.DiskDevice{})
				vmi.Spec.Domain.Devices.Disks[1].Shareable = &yes
			},
			"volume pvc: PVC alone is of access mode ReadWriteOncePod, which no two VMs share",
		},
		"a host disk": {
			func(vmi *kubevirt.VirtualMachineInstance) {
				vmi.Spec.Volumes = append(vmi.Spec.Volumes, kubevirt.Volume{Name: "host", VolumeSource: kubevirt.VolumeSource{
					HostDisk: &kubevirt.HostDisk{Path: "/var/data/disk.img", Type: kubevirt.HostDiskExists}}})
			},
			"spec.volumes[1].hostDisk: HostDisk feature gate is not enabled",
		},
		"hook sidecars": {
			func(vmi *kubevirt.VirtualMachineInstance) {
				vmi.Annotations = map[string]string{vmspec.AnnotationHooks: `[{"image": "a"}]`}
			},
			"metadata.annotations[hooks.kubevirt.io/hookSidecars]: Sidecar feature gate is not enabled",
		},
		"no kernel's image": {
			func(vmi *kubevirt.VirtualMachineInstance) {
				vmi.Spec.Volumes, vmi.Spec.Domain.Devices.Disks = nil, nil
				vmi.Spec.Domain.Firmware = &kubevirt.Firmware{KernelBoot: &kubevirt.KernelBoot{
					Container: &kubevirt.KernelBootContainer{KernelPath: "/boot/vmlinuz"}}}
			},
			"spec.domain.firmware.kernelBoot.container.image: name the kernel's image",
		},
	} {
		t.Run(name, func(t *testing.T) {
			vmi := read(t, "least")
			tt.change(vmi)
			_, err := pod.New(vmi, pvcObjects(t), nil, pod.Options{RuntimeClass: "vm"})
			if err == nil || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("%v, want %s", err, tt.want)
			}
		})
	}
}

// TestHookVolumes: a volume may not have the name of one of the sidecars'.
func TestHookVolumes(t *testing.T) {
	vmi := read(t, "hooks")
	vmi.Spec.Domain.Devices.Disks[0].Name, vmi.Spec.Volumes[0].Name = "hook-sidecar-sockets", "hook-sidecar-sockets"
	_, err := pod.New(vmi, nil, nil, pod.Options{RuntimeClass: "vm", Surroundings: pod.Surroundings{
		Config: config.Config{Flags: config.Flags{Gates: manifest.Gates{HookSidecars: true}}},
	}})
	if want := "spec.volumes[0].name: hook-sidecar- begins"; err == nil || !strings.Contains(err.Error(), want) {
		t.Errorf("%v, want %s", err, want)
	}
}

// TestHookImage: a sidecar that names no image has the cluster's.
func TestHookImage(t *testing.T) {
	vmi := read(t, "least")
	vmi.Annotations = map[string]string{vmspec.AnnotationHooks: `[{"image": "a"}, {}]`}
	p, err := pod.New(vmi, nil, nil, pod.Options{RuntimeClass: "vm", Surroundings: pod.Surroundings{
		Config: config.Config{Flags: config.Flags{Gates: manifest.Gates{HookSidecars: true, HookImage: "sidecar-shim"}}},
	}})
	if err != nil || p.Spec.InitContainers[0].Image != "a" || p.Spec.InitContainers[1].Image != "sidecar-shim" {
		t.Fatalf("%v: %+v", err, p)
	}
}

// addPVC adds a disk on a PVC.
func addPVC(vmi *kubevirt.VirtualMachineInstance, name string, device kubevirt.DiskDevice) {
	vmi.Spec.Domain.Devices.Disks = append(vmi.Spec.Domain.Devices.Disks, kubevirt.Disk{Name: "pvc", DiskDevice: device})
	vmi.Spec.Volumes = append(vmi.Spec.Volumes, kubevirt.Volume{Name: "pvc", VolumeSource: kubevirt.VolumeSource{
		PersistentVolumeClaim: &kubevirt.PersistentVolumeClaimVolumeSource{
			PersistentVolumeClaimVolumeSource: corev1.PersistentVolumeClaimVolumeSource{ClaimName: name},
		},
	}})
}

// TestImages is which image the VM's container has.
func TestImages(t *testing.T) {
	without := func(vmi *kubevirt.VirtualMachineInstance) {
		vmi.Spec.Volumes, vmi.Spec.Domain.Devices.Disks = nil, nil
	}
	for name, tt := range map[string]struct {
		change func(*kubevirt.VirtualMachineInstance)
		want   string
	}{
		"a registry disk": {func(*kubevirt.VirtualMachineInstance) {}, "registry.example.com/guest:1"},
		"no disk":         {without, "registry.example.com/stub:1"},
		"a kernel's image": {func(vmi *kubevirt.VirtualMachineInstance) {
			without(vmi)
			vmi.Spec.Domain.Firmware = kernelIn("registry.example.com/kernel:1")
		}, "registry.example.com/kernel:1"},
		"a registry disk, and a kernel's image": {func(vmi *kubevirt.VirtualMachineInstance) {
			vmi.Spec.Domain.Firmware = kernelIn("registry.example.com/kernel:1")
		}, "registry.example.com/guest:1"},
	} {
		t.Run(name, func(t *testing.T) {
			vmi := read(t, "least")
			tt.change(vmi)
			p, err := pod.New(vmi, nil, nil, pod.Options{RuntimeClass: "vm", StubImage: "registry.example.com/stub:1"})
			if err != nil {
				t.Fatal(err)
			}
			if got := p.Spec.Containers[0].Image; got != tt.want {
				t.Errorf("image %s, want %s", got, tt.want)
			}
			if c := p.Spec.Containers[0]; strings.Contains(c.Image, "stub") && c.ImagePullPolicy != corev1.PullIfNotPresent {
				t.Errorf("pull policy %q of a stub", c.ImagePullPolicy)
			}
			if got := vmspec.VMContainer(p.Annotations); got != pod.Container {
				t.Errorf("the node is not asked for a VM: %q", got)
			}
		})
	}
}

// kernelIn boots a kernel of an image.
func kernelIn(image string) *kubevirt.Firmware {
	return &kubevirt.Firmware{KernelBoot: &kubevirt.KernelBoot{Container: &kubevirt.KernelBootContainer{
		Image: image, KernelPath: "/boot/vmlinuz", ImagePullPolicy: corev1.PullAlways,
	}}}
}

// TestKernelVolume: the VM's container mounts the kernel's image unless it is its own.
func TestKernelVolume(t *testing.T) {
	for image, want := range map[string]bool{"registry.example.com/kernel:1": true, "registry.example.com/guest:1": false} {
		vmi := read(t, "least")
		vmi.Spec.Domain.Firmware = kernelIn(image)
		p, err := pod.New(vmi, nil, nil, pod.Options{RuntimeClass: "vm"})
		if err != nil {
			t.Fatal(err)
		}
		at := slices.IndexFunc(p.Spec.Containers[0].VolumeMounts, func(m corev1.VolumeMount) bool { return m.MountPath == vmspec.KernelPath })
		if (at >= 0) != want {
			t.Fatalf("%s: mounts %+v", image, p.Spec.Containers[0].VolumeMounts)
		}
		if !want {
			continue
		}
		mount := p.Spec.Containers[0].VolumeMounts[at]
		v := p.Spec.Volumes[slices.IndexFunc(p.Spec.Volumes, func(v corev1.Volume) bool { return v.Name == mount.Name })]
		if v.Image == nil || v.Image.Reference != image || v.Image.PullPolicy != corev1.PullAlways || !mount.ReadOnly {
			t.Errorf("%s: %+v, %+v", image, mount, v)
		}
		vmi.Spec.Volumes[0].Name, vmi.Spec.Domain.Devices.Disks[0].Name = v.Name, v.Name
		if _, err := pod.New(vmi, nil, nil, pod.Options{RuntimeClass: "vm"}); err == nil || !strings.Contains(err.Error(), "spec.volumes[0].name") {
			t.Errorf("a volume of its name: %v", err)
		}
	}
}

// TestLabelOf: a label's value is KubeVirt's.
func TestLabelOf(t *testing.T) {
	for name, want := range map[string]string{
		strings.Repeat("a", 63): strings.Repeat("a", 63),
		strings.Repeat("a", 64): strings.Repeat("a", 54) + "-0098ba82",
	} {
		if got := pod.LabelOf(name); got != want {
			t.Errorf("%s: %s; want %s", name, got, want)
		}
	}
}

func TestName(t *testing.T) {
	vmi := read(t, "least")
	first := pod.Name(vmi)
	vmi.UID = "another"
	if second := pod.Name(vmi); second == first {
		t.Errorf("the pods of two instances are both named %s", first)
	}
	vmi.Name = strings.Repeat("a.", 126) + "b"
	if name := pod.Name(vmi); len(name) > 253 || strings.Contains(name, ".-") {
		t.Errorf("%d characters: %s", len(name), name)
	}
}
