package vmspec_test

import (
	"encoding/json"
	"strings"
	"testing"

	"gotest.tools/v3/golden"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/nodevirt/nodevirt/shim/vmspec"
)

func TestFromCRI(t *testing.T) {
	for _, tt := range []struct {
		name        string // of its golden file
		annotations map[string]string
		resources   *runtimeapi.LinuxContainerResources // nil: 1.5 CPUs and 256 MiB
		mounts      []*runtimeapi.Mount
		devices     []*runtimeapi.Device
	}{
		{name: "plain"},
		{name: "plain-image-volumes", mounts: []*runtimeapi.Mount{
			imageAt("/tools", "sha256:1"), {ContainerPath: "/etc/hosts", HostPath: "/x"}, imageAt("/mnt/data/", "sha256:2", "disk/b.img"),
		}},
		{name: "plain-claims", annotations: map[string]string{vmspec.AnnotationDiskOrigin: "root=disk, data=tools"}, mounts: []*runtimeapi.Mount{
			imageAt("/tools", "sha256:1"), {ContainerPath: "/claims/root", HostPath: "/srv/root"},
			{ContainerPath: "/claims/data", HostPath: "/srv/data"}, {ContainerPath: "/claims/own", HostPath: "/srv/own"},
		}},
		{
			name: "vmi-image-volumes",
			annotations: vmi(`{"domain": {"devices": {"disks": [
					{"name": "tools", "cdrom": {}, "errorPolicy": "report"}, {"name": "root", "disk": {"bus": "virtio"}},
					{"name": "data", "disk": {"bus": "scsi", "readonly": true}, "serial": "D-1", "io": "default"}, {"name": "rest"}]}},
				"volumes": [{"name": "data", "containerDisk": {"image": "d", "path": "/disk/b.img"}},
					{"name": "root", "containerDisk": {"image": "r"}}, {"name": "tools", "containerDisk": {"image": "t"}},
					{"name": "rest", "emptyDisk": {"capacity": 1}}]}`),
			mounts: []*runtimeapi.Mount{imageAt("/volumes/tools", "sha256:1", "disk/a.iso"), imageAt("/volumes/data", "sha256:2")},
		},
		{
			name: "vmi-network-disks",
			annotations: with(vmi(`{"domain": {"devices": {"disks": [{"name": "root", "disk": {"bus": "virtio"}}, {"name": "san", "lun": {}},
					{"name": "cluster", "disk": {"bus": "virtio"}, "shareable": true}, {"name": "image", "disk": {"bus": "scsi"}}]}},
				"volumes": [{"name": "root", "persistentVolumeClaim": {"claimName": "root"}}, {"name": "san", "persistentVolumeClaim": {"claimName": "san"}},
					{"name": "cluster", "persistentVolumeClaim": {"claimName": "cluster"}}, {"name": "image", "persistentVolumeClaim": {"claimName": "image"}}]}`),
				vmspec.AnnotationNetworkDisks, `{
				"root": {"pvc": "root", "volume": "pv1", "secretName": "chap", "secretMount": "root-abcde",
					"iscsi": {"portals": ["10.0.0.1:3260", "san.example.com:3260"], "target": "iqn.2013-07.com.example:iscsi-nopool", "lun": 2, "initiator": "iqn.2026-11.com.example:node"}},
				"san": {"pvc": "san", "volume": "pv2", "iscsi": {"portals": ["[fd00::1]:3260"], "target": "iqn.2013-07.com.example:tape", "lun": 0}},
				"cluster": {"pvc": "cluster", "volume": "pv3", "shared": true, "iscsi": {"portals": ["10.0.0.1:3260"], "target": "eui.02004567A425678D", "lun": 1}},
				"image": {"pvc": "image", "volume": "pv4", "readOnly": true, "secretName": "ceph", "secretMount": "image-abcde",
					"rbd": {"monitors": ["10.0.0.1:6789"], "pool": "vms", "image": "disk", "user": "nodevirt"}}}`),
			mounts: []*runtimeapi.Mount{filesAt("root-abcde", "secret"), filesAt("image-abcde", "secret")},
		},
		{
			name: "vmi-secrets",
			annotations: vmi(`{"domain": {"devices": {"disks": [{"name": "root"}, {"name": "seed", "disk": {"bus": "virtio"}}]}},
				"volumes": [{"name": "root", "containerDisk": {"image": "r"}}, {"name": "seed", "cloudInitNoCloud": {
					"secretRef": {"name": "a"}, "networkDataSecretRef": {"name": "b"}}}]}`),
			mounts: []*runtimeapi.Mount{{ContainerPath: "/volumes/seed", HostPath: secretsAt}},
		},
		{
			name:        "plain-hooks",
			annotations: map[string]string{vmspec.AnnotationHooks: `[{"image": "a", "args": ["--version", "v1alpha2"]}, {"image": "b"}]`},
			mounts:      []*runtimeapi.Mount{{ContainerPath: vmspec.HooksPath, HostPath: "/var/lib/kubelet/pods/1/volumes/kubernetes.io~empty-dir/s"}},
		},
		{
			name:      "plain-without-cpu-limit",
			resources: &runtimeapi.LinuxContainerResources{CpuPeriod: 100_000, MemoryLimitInBytes: 200_000_000},
		},
		{
			name:        "plain-other-annotations",
			annotations: map[string]string{"example.com/team": "a", "kubernetes.io/config.source": "api"},
		},
		{
			name:        "plain-user-data",
			annotations: map[string]string{vmspec.AnnotationUserData: "#cloud-config\nssh_pwauth: true\n"},
		},
		{
			name: "plain-ssh-keys",
			annotations: map[string]string{
				vmspec.AnnotationVMContainer: "vm",
				vmspec.AnnotationSSHKeys:     "# mine\nssh-ed25519 AAAAC3Nz me@home\n\nfrom=\"10.0.0.0/8\" ssh-rsa AAAAB3Nz\n",
			},
		},
		{
			name: "plain-meta-data-merged",
			annotations: map[string]string{
				vmspec.AnnotationMetaData: `{"zone": "b", "public-keys": {"0": "ssh-rsa AAAAold one"},` +
					` "nested": {"z": 1, "a": [true, null]}, "instance-id": "i-1"}`,
				vmspec.AnnotationSSHKeys:       "ssh-rsa AAAAnew two",
				vmspec.AnnotationNetworkConfig: "version: 2\nethernets: {}\n",
			},
		},
		{
			name: "vmi-arm64",
			annotations: vmi(`{"architecture": "arm64", "domain": {"devices": {"autoattachGraphicsDevice": true, "disks": [{"name": "root"}, {"name": "cd", "cdrom": {}}]}},
				"volumes": [{"name": "root", "containerDisk": {"image": "example.com/guest:1"}}, {"name": "more", "emptyDisk": {"capacity": "1Gi"}}]}`),
		},
		{
			name: "vmi-least",
			annotations: vmi(`{"domain": {"devices": {"disks": [{"name": "root"}]}},
				"volumes": [{"name": "root", "containerDisk": {"image": "example.com/guest:1"}}]}`),
		},
		{name: "plain-imports", annotations: map[string]string{vmspec.AnnotationImports: "data, more-data"}},
		{name: "plain-disk-mode", annotations: map[string]string{vmspec.AnnotationDiskMode: "raw"}},
		{
			name:        "vmi-disk-mode",
			annotations: with(vmi(least(``, ``)), vmspec.AnnotationDiskMode, " file , root = raw"),
		},
		{name: "vmi-all", annotations: with(with(vmi(allVMI), vmspec.AnnotationDownwardMetrics, ""),
			vmspec.AnnotationNetworkBindings, `{"macvtap": {"domainAttachmentType": "tap"}}`), resources: &runtimeapi.LinuxContainerResources{CpusetCpus: "0-9", CpuQuota: 1_000_000, CpuPeriod: 100_000}, mounts: []*runtimeapi.Mount{
			filesAt("config", "configmap"), filesAt("secret", "secret"), filesAt("slic", "secret"), filesAt("pod", "downward-api"),
			filesAt("account", "projected"), filesAt("answers", "secret"),
			{ContainerPath: "/var/run/secrets/cloud/token", HostPath: "/pods/1/volumes/kubernetes.io~projected/token"}, {ContainerPath: "/volumes/host", HostPath: "/var/data"},
			{ContainerPath: vmspec.StatePath, HostPath: "/pods/1/state"},
			filesAt("access-credential-0", "secret"), filesAt("access-credential-1", "secret"), filesAt("access-credential-2", "secret"),
		}, devices: []*runtimeapi.Device{
			{ContainerPath: "/dev/san", HostPath: "/pods/1/san", Permissions: "mr"},
			{ContainerPath: "/dev/golden", HostPath: "/pods/1/golden", Permissions: "mr"},
			{ContainerPath: "/dev/vhost-vsock", HostPath: "/dev/vhost-vsock", Permissions: "mrw"},
		}},
		{
			name: "vmi-files",
			annotations: vmi(`{"domain": {"devices": {"disks": [{"name": "root"}, {"name": "config", "disk": {"bus": "virtio"}},
					{"name": "secret", "cdrom": {"bus": "scsi"}, "serial": "S-1"}]}},
				"volumes": [{"name": "config", "configMap": {"name": "a"}}, {"name": "root", "containerDisk": {"image": "r"}},
					{"name": "secret", "secret": {"secretName": "b", "volumeLabel": "OEMDRV"}}, {"name": "answers", "sysprep": {"configMap": {"name": "c"}}}]}`),
			mounts: []*runtimeapi.Mount{filesAt("config", "configmap"), filesAt("secret", "secret"), filesAt("answers", "configmap")},
		},
		{
			name: "vmi-config-drive",
			annotations: with(with(vmi(`{"domain": {"firmware": {"uuid": "5d307ca9-b3ef-428c-8861-06e72d69f223"}, "devices": {"disks": [{"name": "root"}, {"name": "seed", "disk": {"bus": "virtio"}}]}},
				"volumes": [{"name": "root", "containerDisk": {"image": "r"}}, {"name": "seed", "cloudInitConfigDrive": {
					"secretRef": {"name": "a"}, "networkData": "{}"}}],
				"accessCredentials": [{"sshPublicKey": {"source": {"secret": {"secretName": "keys"}}, "propagationMethod": {"configDrive": {}}}}]}`), vmspec.AnnotationSSHKeys, "ssh-rsa AAAAnew two"),
				vmspec.AnnotationMetaData, "zone: b\nnested: {z: 1, 2: [true, null]}\npublic-keys: ssh-rsa AAAAold one\n"),
			mounts: []*runtimeapi.Mount{{ContainerPath: "/volumes/seed", HostPath: secretsAt}, filesAt("access-credential-0", "secret")},
		},
		{
			name: "vmi-config-drive-least",
			annotations: vmi(`{"domain": {"devices": {}}, "volumes": [{"name": "root", "containerDisk": {"image": "a"}},
				{"name": "seed", "cloudInitConfigDrive": {"userData": "#!/bin/sh\n"}}]}`),
		},
		{
			name: "vmi-pvcs",
			annotations: with(vmi(`{"domain": {"devices": {"disks": [{"name": "cd", "cdrom": {}}, {"name": "root", "disk": {"bus": "virtio"}},
				{"name": "block", "disk": {"bus": "virtio"}}, {"name": "san", "lun": {}}, {"name": "library", "disk": {"bus": "virtio"}}]}},
				"volumes": [{"name": "root", "persistentVolumeClaim": {"claimName": "a"}}, {"name": "block", "persistentVolumeClaim": {"claimName": "b"}},
					{"name": "cd", "persistentVolumeClaim": {"claimName": "c"}}, {"name": "san", "persistentVolumeClaim": {"claimName": "d"}},
					{"name": "library", "persistentVolumeClaim": {"claimName": "e"}}]}`), vmspec.AnnotationBlankDisks, "root=1Gi"),
			mounts: []*runtimeapi.Mount{{ContainerPath: "/volumes/root", HostPath: "/srv/root"},
				{ContainerPath: "/volumes/cd", HostPath: "/srv/cd", Readonly: true}},
			devices: []*runtimeapi.Device{
				{ContainerPath: "/dev/block", HostPath: "/dev/sdb", Permissions: "mrw"},
				{ContainerPath: "/dev/san", HostPath: "/dev/sdc", Permissions: "mrw"},
				{ContainerPath: "/dev/library", HostPath: "/dev/sdd", Permissions: "r"},
			},
		},
		{
			name: "vmi-io-threads",
			annotations: vmi(`{"domain": {"ioThreadsPolicy": "auto", "resources": {"requests": {"cpu": "1500m"}}, "devices": {"disks": [
					{"name": "a", "disk": {"bus": "virtio"}}, {"name": "b", "disk": {"bus": "virtio"}, "dedicatedIOThread": true},
					{"name": "c", "disk": {"bus": "scsi"}}, {"name": "d", "disk": {"bus": "virtio"}}, {"name": "e", "disk": {"bus": "virtio"}},
					{"name": "f", "disk": {"bus": "virtio"}}, {"name": "g", "disk": {"bus": "virtio"}}]}},
				"volumes": [{"name": "a", "emptyDisk": {"capacity": 1}}, {"name": "b", "emptyDisk": {"capacity": 1}}, {"name": "c", "emptyDisk": {"capacity": 1}},
					{"name": "d", "emptyDisk": {"capacity": 1}}, {"name": "e", "emptyDisk": {"capacity": 1}}, {"name": "f", "emptyDisk": {"capacity": 1}},
					{"name": "g", "emptyDisk": {"capacity": 1}}]}`),
		},
		{
			name: "vmi-dedicated-io-thread",
			annotations: vmi(`{"domain": {"devices": {"blockMultiQueue": true, "disks": [
					{"name": "a", "disk": {"bus": "virtio"}, "dedicatedIOThread": true}, {"name": "b", "disk": {"bus": "scsi"}}]}},
				"volumes": [{"name": "a", "emptyDisk": {"capacity": 1}}, {"name": "b", "emptyDisk": {"capacity": 1}}]}`),
		},
		{
			name: "vmi-shareable",
			annotations: vmi(`{"domain": {"ioThreadsPolicy": "shared", "devices": {"disks": [
					{"name": "a", "disk": {"bus": "virtio"}, "shareable": true}, {"name": "b", "disk": {"bus": "scsi"}, "shareable": true, "cache": "writethrough"}]}},
				"volumes": [{"name": "a", "persistentVolumeClaim": {"claimName": "a"}}, {"name": "b", "persistentVolumeClaim": {"claimName": "b"}}]}`),
			devices: []*runtimeapi.Device{
				{ContainerPath: "/dev/a", HostPath: "/dev/sdb", Permissions: "mrw"}, {ContainerPath: "/dev/b", HostPath: "/dev/sdc", Permissions: "mrw"},
			},
		},
		{
			name: "vmi-filesystems",
			annotations: vmi(`{"domain": {"devices": {"disks": [{"name": "root"}], "filesystems": [{"name": "data", "virtiofs": {}}, {"name": "library", "virtiofs": {}},
					{"name": "config", "virtiofs": {}}, {"name": "secret", "virtiofs": {}}, {"name": "pod", "virtiofs": {}}, {"name": "account", "virtiofs": {}}]}},
				"volumes": [{"name": "config", "configMap": {"name": "a"}}, {"name": "secret", "secret": {"secretName": "a"}},
					{"name": "pod", "downwardAPI": {"fields": [{"path": "labels", "fieldRef": {"fieldPath": "metadata.labels"}}]}},
					{"name": "account", "serviceAccount": {"serviceAccountName": "a"}}, {"name": "data", "persistentVolumeClaim": {"claimName": "a"}},
					{"name": "library", "persistentVolumeClaim": {"claimName": "b"}}, {"name": "root", "containerDisk": {"image": "r"}}]}`),
			mounts: []*runtimeapi.Mount{filesAt("config", "configmap"), filesAt("secret", "secret"), filesAt("pod", "downward-api"), filesAt("account", "projected"),
				{ContainerPath: "/volumes/data", HostPath: "/srv/data"}, {ContainerPath: "/volumes/library", HostPath: "/srv/library", Readonly: true}},
		},
		{
			name: "vmi-ephemeral",
			annotations: vmi(`{"domain": {"devices": {"disks": [{"name": "root", "disk": {"bus": "virtio"}}, {"name": "cd", "cdrom": {}}]}},
				"volumes": [{"name": "image", "containerDisk": {"image": "i"}}, {"name": "root", "ephemeral": {"persistentVolumeClaim": {"claimName": "a"}}},
					{"name": "cd", "ephemeral": {"persistentVolumeClaim": {"claimName": "b"}}}]}`),
			mounts:  []*runtimeapi.Mount{{ContainerPath: "/volumes/root", HostPath: "/srv/root", Readonly: true}},
			devices: []*runtimeapi.Device{{ContainerPath: "/dev/cd", HostPath: "/dev/sdb", Permissions: "r"}},
		},
		{
			name: "vmi-host-disk",
			annotations: vmi(`{"domain": {"devices": {"disks": [{"name": "root", "disk": {"bus": "virtio"}}, {"name": "cd", "cdrom": {}}]}},
				"volumes": [{"name": "root", "hostDisk": {"path": "/var/data/root.img", "type": "DiskOrCreate", "capacity": "10M"}},
					{"name": "cd", "hostDisk": {"path": "/srv/cd.iso", "type": "Disk", "capacity": "0"}}]}`),
			mounts: []*runtimeapi.Mount{{ContainerPath: "/volumes/root", HostPath: "/var/data"}, {ContainerPath: "/volumes/cd", HostPath: "/srv", Readonly: true}},
		},
		{
			name: "vmi-pvc-origin",
			annotations: with(vmi(`{"domain": {"devices": {"disks": [{"name": "tools", "cdrom": {}}, {"name": "root"}]}},
				"volumes": [{"name": "image", "containerDisk": {"image": "i"}}, {"name": "tools", "containerDisk": {"image": "t"}},
					{"name": "root", "persistentVolumeClaim": {"claimName": "a"}}]}`), vmspec.AnnotationDiskOrigin, "root=image"),
			mounts: []*runtimeapi.Mount{{ContainerPath: "/volumes/root", HostPath: "/srv/root"}, imageAt("/volumes/tools", "sha256:1")},
		},
		{
			name: "vmi-nulls-and-empty",
			annotations: vmi(`{"hostname": "", "networks": null, "tolerations": null, "domain": {
				"cpu": {}, "memory": null, "resources": {}, "machine": {"type": ""}, "devices": {
				"disks": [{"name": "root", "disk": {"bus": ""}}], "interfaces": []}},
				"volumes": [{"name": "root", "containerDisk": {"image": ""}}]}`),
		},
		{
			name:        "vmi-reserved-overhead",
			resources:   &runtimeapi.LinuxContainerResources{MemoryLimitInBytes: 1280 << 20},
			annotations: vmi(least(`"memory": {"reservedOverhead": {"addedOverhead": "256Mi", "memLock": "Required"}}`, ``)),
		},
		{
			name:      "vmi-reserved-overhead-agrees",
			resources: &runtimeapi.LinuxContainerResources{MemoryLimitInBytes: 1280 << 20},
			annotations: vmi(least(`"memory": {"guest": "1Gi", "reservedOverhead": {"addedOverhead": "256Mi", "memLock": "NotRequired"}},
				"resources": {"limits": {"memory": "1Gi"}}`, ``)),
		},
		{
			name: "vmi-port-ranges",
			annotations: vmi(`{"domain": {"memory": {"guest": "64Mi"}, "devices": {"interfaces": [{"name": "a", "masquerade": {},
				"portRanges": [{"protocol": "TCP", "start": 30000, "end": 31000}, {"protocol": "UDP", "start": 53, "end": 53}]}]}},
				"networks": [{"name": "a", "pod": {}}]}`),
		},
		{
			name:      "vmi-resources",
			resources: &runtimeapi.LinuxContainerResources{CpuQuota: 250_000, CpuPeriod: 100_000, MemoryLimitInBytes: 1 << 30},
			annotations: vmi(least(`"resources": {"requests": {"cpu": 1, "memory": "512Mi"},
				"limits": {"cpu": "2500m", "memory": "1Gi"}}`, ``)),
		},
		{
			name: "vmi-sev",
			annotations: vmi(least(`"launchSecurity": {"sev": {"policy": {"encryptedState": true}, "dhCert": "ZGg=", "session": "cw=="}},
				"firmware": {"bootloader": {"efi": {"secureBoot": false}}}`, ``)),
		},
		{
			name:        "vmi-tdx", // whose firmware needs no SMM for secure boot
			annotations: vmi(least(`"launchSecurity": {"tdx": {}}, "firmware": {"bootloader": {"efi": {}}}`, ``)),
		},
		{
			name:        "vmi-maximums",
			resources:   &runtimeapi.LinuxContainerResources{MemoryLimitInBytes: 1 << 30},
			annotations: vmi(least(`"cpu": {"sockets": 2, "cores": 3, "maxSockets": 4}, "memory": {"maxGuest": "4Gi"}`, ``)),
		},
		{
			name: "vmi-hugepages", // the limit of memory is for QEMU
			resources: &runtimeapi.LinuxContainerResources{MemoryLimitInBytes: 1 << 20, HugepageLimits: []*runtimeapi.HugepageLimit{
				{PageSize: "2MB", Limit: 512 << 20}, {PageSize: "1GB"}}},
			annotations: vmi(least(`"memory": {"guest": "512Mi", "hugepages": {"pageSize": "2Mi"}},
				"resources": {"limits": {"memory": "512Mi"}}`, ``)),
		},
		{
			name: "vmi-no-interface-scsi",
			annotations: vmi(`{"domain": {"devices": {"autoattachPodInterface": false,
				"disks": [{"name": "root", "serial": "0123456789-0123456789-0123456789", "disk": {"bus": "scsi"}}]}},
				"volumes": [{"name": "root", "containerDisk": {"image": "a", "path": "/disk/b/c.img"}}]}`),
		},
		{
			name: "vmi-seed-in-two-places",
			annotations: with(vmi(`{"domain": {"devices": {"disks": [{"name": "seed", "cdrom": {}}, {"name": "root"}]}},
				"volumes": [{"name": "root", "containerDisk": {"image": "a"}},
				{"name": "seed", "cloudInitNoCloud": {"userDataBase64": "I2Nsb3VkLWNvbmZpZwo="}}]}`),
				vmspec.AnnotationNetworkConfig, "version: 2\n"),
		},
		{
			name: "vmi-seed-without-a-disk", // on SATA, where it has to be a CD
			annotations: vmi(`{"domain": {"devices": {}}, "volumes": [{"name": "root", "containerDisk": {"image": "a"}},
				{"name": "seed", "cloudInitNoCloud": {"userData": "#!/bin/sh\n"}}]}`),
		},
		{
			name:        "vmi-seed-of-annotations",
			annotations: with(vmi(least(``, ``)), vmspec.AnnotationUserData, "#!/bin/sh\n"),
		},
	} {
		t.Run(tt.name, func(t *testing.T) {
			pod, container := pod(tt.annotations), container(tt.resources)
			container.Mounts, container.Devices = tt.mounts, tt.devices
			if err := vmspec.ValidateSandbox(pod); err != nil {
				t.Errorf("ValidateSandbox: %v", err)
			}
			u, err := vmspec.FromCRI(pod, container)
			if err != nil {
				t.Fatal(err)
			}
			assertJSON(t, u.Resolve(vmspec.Facts{}), tt.name+".json")
		})
	}
}

// assertJSON compares a value, as JSON, with a golden file.
func assertJSON(t *testing.T, value any, name string) {
	t.Helper()
	got, err := json.MarshalIndent(value, "", "\t")
	if err != nil {
		t.Fatal(err)
	}
	golden.Assert(t, string(got)+"\n", name)
}

func TestHostname(t *testing.T) {
	for _, tt := range []struct{ hostname, pod, want string }{
		{"web", "web-0", "web"},
		{"", "web-0", "web-0"},
		{"Web_1.example.com", "web-0", "web-1"},
		{"", "-a.b-", "a"},
		{"", "___", "vm"},
		{"", "0123456789012345678901234567890123456789012345678901234567890-é-tail",
			"0123456789012345678901234567890123456789012345678901234567890"},
		{"", "012345678901234567890123456789012345678901234567890123456789a1-tail",
			"012345678901234567890123456789012345678901234567890123456789a1"},
	} {
		p := pod(nil)
		p.Hostname, p.Metadata.Name = tt.hostname, tt.pod
		u, err := vmspec.FromCRI(p, container(nil))
		if err != nil {
			t.Fatal(err)
		}
		if spec := u.Resolve(vmspec.Facts{}); spec.Hostname != tt.want {
			t.Errorf("host name of %q, %q: %q, want %q", tt.hostname, tt.pod, spec.Hostname, tt.want)
		}
	}
}

func pod(annotations map[string]string) *runtimeapi.PodSandboxConfig {
	return &runtimeapi.PodSandboxConfig{
		Metadata:    &runtimeapi.PodSandboxMetadata{Name: "web-0", Namespace: "shop", Uid: "1-2-3"},
		Hostname:    "web",
		Annotations: annotations,
	}
}

func container(r *runtimeapi.LinuxContainerResources) *runtimeapi.ContainerConfig {
	if r == nil {
		r = &runtimeapi.LinuxContainerResources{
			CpuQuota: 150_000, CpuPeriod: 100_000, MemoryLimitInBytes: 256 << 20,
		}
	}
	return &runtimeapi.ContainerConfig{
		Metadata: &runtimeapi.ContainerMetadata{Name: "vm"},
		Image:    &runtimeapi.ImageSpec{Image: "sha256:0", UserSpecifiedImage: "example.com/guest:1"},
		Linux:    &runtimeapi.LinuxContainerConfig{Resources: r},
	}
}

// secretsAt is where a kubelet puts Secrets.
const secretsAt = "/var/lib/kubelet/pods/1-2-3/volumes/kubernetes.io~projected/seed"

// filesAt is a volume of a kind to which the kubelet writes files.
func filesAt(name, kind string) *runtimeapi.Mount {
	return &runtimeapi.Mount{
		ContainerPath: "/volumes/" + name, Readonly: true, HostPath: "/var/lib/kubelet/pods/1-2-3/volumes/kubernetes.io~" + kind + "/" + name,
	}
}

// imageAt is an image volume.
func imageAt(path, id string, subPath ...string) *runtimeapi.Mount {
	return &runtimeapi.Mount{
		ContainerPath: path, Readonly: true, Image: &runtimeapi.ImageSpec{Image: id}, ImageSubPath: strings.Join(subPath, "/"),
	}
}

func vmi(text string) map[string]string { return map[string]string{vmspec.AnnotationVMI: text} }

func with(annotations map[string]string, key, value string) map[string]string {
	annotations[key] = value
	return annotations
}

// least is a VMI with one disk, and further fields of domain and of devices.
func least(domain, devices string) string {
	if domain != "" {
		domain += ", "
	}
	if devices != "" {
		devices = ", " + devices
	}
	return `{"domain": {` + domain + `"devices": {"disks": [{"name": "root"}]` + devices + `}},
		"volumes": [{"name": "root", "containerDisk": {"image": "example.com/guest:1"}}]}`
}

// allVMI uses each supported path.
const allVMI = `{
	"architecture": "amd64",
	"hostname": "db",
	"subdomain": "web",
	"terminationGracePeriodSeconds": 30,
	"startStrategy": "Paused",
	"domain": {
		"cpu": {"cores": 2, "sockets": 3, "threads": 1, "model": "Skylake-Client-IBRS",
			"features": [{"name": "vmx", "policy": "disable"}, {"name": "aes"}],
			"dedicatedCpuPlacement": true, "isolateEmulatorThread": true, "numa": {"guestMappingPassthrough": {}}, "realtime": {"mask": "0-4,^1"}},
		"memory": {"guest": "1.5Gi", "hugepages": {"pageSize": "2Mi"}, "reservedOverhead": {"addedOverhead": "64Mi", "memLock": "Required"}},
		"resources": {"requests": {"cpu": 6, "memory": "2Gi"}, "limits": {"cpu": 6, "memory": "2Gi"}, "overcommitGuestOverhead": true},
		"machine": {"type": "pc-q35-7.2"},
		"rebootPolicy": "Terminate",
		"ioThreadsPolicy": "supplementalPool",
		"ioThreads": {"supplementalPoolThreadCount": 3},
		"chassis": {"manufacturer": "ACME & Co", "version": "1.0", "serial": "C-1", "asset": "A-1", "sku": "S-1"},
		"features": {"acpi": {"enabled": true}, "smm": {"enabled": true}, "apic": {"enabled": true, "endOfInterrupt": true},
			"hypervPassthrough": {"enabled": false}, "kvm": {"hidden": true}, "pvspinlock": {"enabled": false},
			"hyperv": {"relaxed": {"enabled": true}, "vapic": {"enabled": false}, "spinlocks": {"enabled": true, "spinlocks": 8191},
				"vpindex": {"enabled": false}, "runtime": {"enabled": true}, "synic": {"enabled": false},
				"synictimer": {"enabled": true, "direct": {"enabled": true}}, "reset": {"enabled": true},
				"vendorid": {"enabled": true, "vendorid": "Contoso 1"}, "frequencies": {"enabled": true},
				"reenlightenment": {"enabled": true}, "tlbflush": {"enabled": true, "direct": {"enabled": true}, "extended": {"enabled": true}},
				"ipi": {"enabled": true}, "evmcs": {"enabled": true}}},
		"clock": {"utc": {"offsetSeconds": -60}, "timezone": "Europe/Berlin", "timer": {"hpet": {"present": true, "tickPolicy": "delay"},
			"pit": {"present": true, "tickPolicy": "discard"}, "rtc": {"present": true, "tickPolicy": "catchup", "track": "wall"},
			"kvm": {"present": false}, "hyperv": {"present": true}}},
		"firmware": {
			"uuid": "5D307CA9-B3EF-428C-8861-06E72D69F223",
			"serial": "e4686d2c-6e8d-4335-b8fd-81bee22f4815",
			"acpi": {"slicNameRef": "slic", "msdmNameRef": "secret"},
			"bootloader": {"efi": {"secureBoot": true, "persistent": true}},
			"kernelBoot": {"kernelArgs": "console=ttyS0 root=/dev/vda", "container": {
				"image": "example.com/guest:1", "kernelPath": "/boot/vmlinuz", "initrdPath": "/boot/initrd.img"}}
		},
		"devices": {
			"disks": [
				{"name": "seed", "cdrom": {"bus": "sata", "readonly": true}, "bootOrder": 2},
				{"name": "secret", "cdrom": {"tray": "open"}},
				{"name": "root", "disk": {"bus": "virtio", "readonly": false, "pciAddress": "0000:02:00.0"}, "bootOrder": 1,
					"serial": "root-1", "tag": "system", "cache": "writeback", "io": "threads", "errorPolicy": "enospace", "shareable": false,
					"dedicatedIOThread": false, "blockSize": {"custom": {"logical": 512, "physical": 4096}}},
				{"name": "golden", "disk": {"bus": "virtio"}, "blockSize": {"matchVolume": {"enabled": true}}},
				{"name": "scratch", "disk": {"bus": "scsi"}, "io": "native"},
				{"name": "san", "lun": {"bus": "scsi", "readonly": true, "reservation": false}}
			],
			"filesystems": [{"name": "account", "virtiofs": {}}, {"name": "cloud", "virtiofs": {}}],
			"interfaces": [{"name": "pods_1", "model": "e1000e", "macAddress": "02-00-00-AA-bb-01",
				"masquerade": {}, "ports": [{"name": "http", "port": 80}, {"port": 53, "protocol": "UDP"}],
				"dhcpOptions": {"bootFileName": "boot.efi", "tftpServerName": "192.0.2.7", "ntpServers": ["192.0.2.8", "192.0.2.010"],
					"privateOptions": [{"option": 225, "value": "one"}, {"option": 254, "value": "two"}]}},
				{"name": "backup", "model": "virtio", "bridge": {}, "bootOrder": 3, "pciAddress": "0000:01:00.0", "tag": "backups",
				"acpiIndex": 101, "state": "down"},
				{"name": "vf", "sriov": {}, "macAddress": "02:00:00:aa:bb:02", "bootOrder": 4, "pciAddress": "0000:03:00.0", "tag": "fast"},
				{"name": "claimed", "sriov": {}}, {"name": "plugged", "binding": {"name": "macvtap"}, "ports": [{"port": 1}]}],
			"gpus": [{"name": "gpu", "deviceName": "nvidia.com/TU104_GL", "tag": "cuda"},
				{"name": "vgpu", "claimName": "pool", "requestName": "vgpu", "virtualGPUOptions": {"display": {"enabled": true, "ramFB": {"enabled": false}}}}],
			"hostDevices": [{"name": "stick", "deviceName": "kubevirt.io/storage", "tag": "backup"}, {"name": "qat", "claimName": "own", "requestName": "qat"}],
			"networkInterfaceMultiqueue": true,
			"blockMultiQueue": true,
			"rng": {},
			"downwardMetrics": {},
			"clientPassthrough": {},
			"autoattachVSOCK": true,
			"useVirtioTransitional": true,
			"tpm": {"enabled": true, "persistent": true},
			"autoattachMemBalloon": false,
			"autoattachGraphicsDevice": true,
			"autoattachSerialConsole": false,
			"logSerialConsole": true,
			"autoattachInputDevice": true,
			"disableHotplug": true,
			"sound": {"name": "card", "model": "ac97"},
			"video": {"type": "virtio"},
			"panicDevices": [{"model": "hyperv"}, {}],
			"inputs": [{"name": "pen", "type": "tablet", "bus": "virtio"}, {"name": "mouse"}],
			"watchdog": {"name": "dog", "i6300esb": {"action": "poweroff"}},
			"autoattachPodInterface": true
		}
	},
	"volumes": [
		{"name": "root", "containerDisk": {"image": "example.com/guest:1", "path": "/disk/root.qcow2",
			"imagePullPolicy": "IfNotPresent"}},
		{"name": "scratch", "emptyDisk": {"capacity": "1G"}},
		{"name": "san", "persistentVolumeClaim": {"claimName": "san", "readOnly": true}},
		{"name": "golden", "ephemeral": {"persistentVolumeClaim": {"claimName": "golden", "readOnly": true}}},
		{"name": "host", "hostDisk": {"path": "/var/data/host.img", "type": "DiskOrCreate", "capacity": "1G", "shared": true}},
		{"name": "seed", "cloudInitNoCloud": {"userData": "#cloud-config\n", "networkDataBase64": "dmVyc2lvbjogMgo="}},
		{"name": "config", "configMap": {"name": "a", "optional": true, "volumeLabel": "My files"}},
		{"name": "secret", "secret": {"secretName": "a", "optional": false, "volumeLabel": "OEMDRV"}},
		{"name": "slic", "secret": {"secretName": "license"}},
		{"name": "pod", "downwardAPI": {"volumeLabel": "pod", "fields": [
			{"path": "about/labels", "mode": 420, "fieldRef": {"apiVersion": "v1", "fieldPath": "metadata.labels"}},
			{"path": "memory", "resourceFieldRef": {"containerName": "compute", "resource": "limits.memory", "divisor": "1Mi"}}]}},
		{"name": "account", "serviceAccount": {"serviceAccountName": "a"}},
		{"name": "answers", "sysprep": {"secret": {"name": "a"}}},
		{"name": "metrics", "downwardMetrics": {}},
		{"name": "cloud", "containerPath": {"path": "/var/run/secrets/cloud/token", "readOnly": true}}
	],
	"networks": [
		{"name": "pods_1", "pod": {"vmNetworkCIDR": "10.009.0.0/24", "vmIPv6NetworkCIDR": "fd09::/120"}},
		{"name": "backup", "multus": {"networkName": "default/backup-net", "default": false}},
		{"name": "vf", "multus": {"networkName": "sriov"}}, {"name": "claimed", "resourceClaim": {"claimName": "pool", "requestName": "vf"}},
		{"name": "plugged", "multus": {"networkName": "lan"}}],
	"resourceClaims": [{"name": "pool", "resourceClaimTemplateName": "gpus"}, {"name": "own", "resourceClaimName": "qat.7"}],
	"accessCredentials": [
		{"sshPublicKey": {"source": {"secret": {"secretName": "team"}}, "propagationMethod": {"noCloud": {}}}},
		{"sshPublicKey": {"source": {"secret": {"secretName": "team"}}, "propagationMethod": {"qemuGuestAgent": {"users": ["fedora", "j.doe@example"]}}}},
		{"userPassword": {"source": {"secret": {"secretName": "passwords"}}, "propagationMethod": {"qemuGuestAgent": {}}}}
	]
}`
