package vmspec_test

import (
	"strings"
	"testing"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/nodevirt/nodevirt/shim/vmspec"
)

// TestBadMounts has pods that are fine but for what their container mounts.
func TestBadMounts(t *testing.T) {
	two := vmi(`{"domain": {"devices": {"disks": [{"name": "root"}, {"name": "data"}]}},
		"volumes": [{"name": "root", "containerDisk": {"image": "r"}}, {"name": "data", "containerDisk": {"image": "d", "path": "/disk/a"}}]}`)
	seeded := func(source string) map[string]string {
		return vmi(`{"domain": {"devices": {"disks": [{"name": "root"}, {"name": "seed"}]}},
			"volumes": [{"name": "root", "containerDisk": {"image": "r"}}, {"name": "seed", ` + source + `}]}`)
	}
	pvcs := vmi(`{"domain": {"devices": {"disks": [{"name": "root"}, {"name": "data"}]}}, "volumes": [
		{"name": "root", "persistentVolumeClaim": {"claimName": "r"}}, {"name": "data", "persistentVolumeClaim": {"claimName": "d"}}]}`)
	one := func(device string) map[string]string {
		return vmi(`{"domain": {"devices": {"disks": [{"name": "root", ` + device + `}]}}, "volumes": [
			{"name": "root", "persistentVolumeClaim": {"claimName": "r"}}]}`)
	}
	lun, lunless := one(`"lun": {}`), one(`"disk": {"bus": "virtio"}`)
	withKeys := vmi(`{"domain": {}, "accessCredentials": [
		{"userPassword": {"source": {"secret": {"secretName": "a"}}, "propagationMethod": {"qemuGuestAgent": {}}}}]}`)
	byPath := func(volumes string, filesystems ...string) map[string]string {
		var shown []string
		for _, name := range filesystems {
			shown = append(shown, `{"name": "`+name+`", "virtiofs": {}}`)
		}
		return vmi(`{"domain": {"devices": {"filesystems": [` + strings.Join(shown, ", ") + `]}}, "volumes": [` + volumes + `]}`)
	}
	bySecret := seeded(`"cloudInitNoCloud": {"secretRef": {"name": "a"}}`)
	for _, tt := range []struct {
		name        string
		annotations map[string]string
		mounts      []*runtimeapi.Mount
		want        string
	}{
		{"names", nil, []*runtimeapi.Mount{imageAt("/v/A b", "sha256:1"), imageAt("/", "sha256:1"), imageAt("/a\x1b/c\n", "sha256:1")},
			`container vm: volume mounted at /v/A b: the last part of the path names the disk, and must be a DNS label (a-z, 0-9 and - inside, at most 63 characters); mount it elsewhere
container vm: volume mounted at /: the last part of the path names the disk, and must be a DNS label (a-z, 0-9 and - inside, at most 63 characters); mount it elsewhere
container vm: volume mounted at /a�/c : the last part of the path names the disk, and must be a DNS label (a-z, 0-9 and - inside, at most 63 characters); mount it elsewhere`},
		{"one name", nil, []*runtimeapi.Mount{imageAt("/a/data", "sha256:1"), imageAt("/b/data", "sha256:2")},
			`container vm: volume mounted at /b/data: the disk name "data" is that of /a/data, too; mount one of them elsewhere`},
		{"container path", byPath(`{"name": "a", "containerPath": {"path": "/run/a"}}, {"name": "c", "containerPath": {"path": "/run/c"}},
			{"name": "d", "containerPath": {"path": "/dev/d"}}`, "a", "c", "d"),
			[]*runtimeapi.Mount{imageAt("/run/a", "sha256:1"), {ContainerPath: "/run/c/below", HostPath: "/srv/c"}},
			`nodevirt.io/vmi: spec.volumes[0].containerPath.path: Invalid value: "/run/a": what the container has there is no folder of the node
nodevirt.io/vmi: spec.volumes[1].containerPath.path: Invalid value: "/run/c": the container mounts nothing there; name a mount's own path
nodevirt.io/vmi: spec.volumes[2].containerPath.path: Invalid value: "/dev/d": the container mounts nothing there; name a mount's own path`},
		{"container path of another volume", byPath(`{"name": "a", "containerPath": {"path": "/volumes/b"}}, {"name": "b", "persistentVolumeClaim": {"claimName": "b"}}`, "a"),
			[]*runtimeapi.Mount{{ContainerPath: "/volumes/b", HostPath: "/srv/b"}},
			`nodevirt.io/vmi: spec.volumes[0]: what container vm mounts at /volumes/b is for another volume`},
		{"the image's name", nil, []*runtimeapi.Mount{imageAt("/mnt/disk", "sha256:1")},
			`container vm: volume mounted at /mnt/disk: the VM has a disk of the name "disk" already; mount it elsewhere`},
		{"the seed's name", map[string]string{vmspec.AnnotationUserData: "a"}, []*runtimeapi.Mount{imageAt("/cloudinit", "sha256:1")},
			`container vm: volume mounted at /cloudinit: the VM has a disk of the name "cloudinit" already; mount it elsewhere`},
		{"subPath", nil, []*runtimeapi.Mount{imageAt("/data", "sha256:1", "disk/../etc")},
			`container vm: volume mounted at /data: subPath "disk/../etc": disks are in /disk of an image; name one there`},
		{"subPath's name", nil, []*runtimeapi.Mount{imageAt("/data", "sha256:1", "disk/a\xff\n")},
			`container vm: volume mounted at /data: subPath "disk/a\xff\n" is not UTF-8 or has characters that cannot be printed; rename the file in the image`},
		{"a folder's name", nil, []*runtimeapi.Mount{{ContainerPath: "/data", HostPath: "/srv/a\x1b\n"}},
			`container vm: volume mounted at /data: its path on the node, "/srv/a\x1b\n", is not UTF-8 or has characters that cannot be printed; rename the folder`},
		{"an emptyDir", nil, []*runtimeapi.Mount{{ContainerPath: "/data", HostPath: "/var/lib/kubelet/pods/1/volumes/kubernetes.io~empty-dir/s"}},
			`container vm: volume mounted at /data: volumes of kind empty-dir are not supported in a VM yet; remove it`},
		{"hooks without a volume", map[string]string{vmspec.AnnotationHooks: `[{"image": "a"}]`}, nil,
			`hooks.kubevirt.io/hookSidecars: mount an emptyDir with the sidecars' sockets at /var/run/kubevirt-hooks, or remove the annotation`},
		{"a volume without hooks", map[string]string{vmspec.AnnotationHooks: `[]`},
			[]*runtimeapi.Mount{{ContainerPath: vmspec.HooksPath, HostPath: "/var/lib/kubelet/pods/1/volumes/kubernetes.io~empty-dir/s"}},
			`container vm: volume mounted at /var/run/kubevirt-hooks: annotation hooks.kubevirt.io/hookSidecars lists no sidecar; add one, or remove the volume`},
		{"a folder for hooks", map[string]string{vmspec.AnnotationHooks: `[{"image": "a"}]`},
			[]*runtimeapi.Mount{{ContainerPath: vmspec.HooksPath, HostPath: "/var/lib/kubelet/pods/1/volumes/kubernetes.io~empty-dir/s/../../a"}},
			`container vm: volume mounted at /var/run/kubevirt-hooks: not an emptyDir; use one`},
		{"persistent state without a volume", vmi(`{"domain": {"devices": {"tpm": {"persistent": true}}}}`), nil,
			`nodevirt.io/vmi: spec.domain: persistent firmware or TPM: container vm mounts no volume at /var/run/kubevirt-state; mount a PVC there`},
		{"a volume without persistent state", vmi(`{"domain": {"devices": {"tpm": {"enabled": false, "persistent": true}}}}`),
			[]*runtimeapi.Mount{{ContainerPath: vmspec.StatePath, HostPath: "/srv/a"}},
			`container vm: volume mounted at /var/run/kubevirt-state: nothing in annotation nodevirt.io/vmi is persistent: efi.persistent or tpm.persistent; add one, or remove the volume`},
		{"persistent state in a part of a volume", vmi(`{"domain": {"devices": {"tpm": {"persistent": true}}}}`),
			[]*runtimeapi.Mount{{ContainerPath: vmspec.StatePath, HostPath: "/var/lib/kubelet/pods/1/volume-subpaths/a/vm/0"}},
			`container vm: volume mounted at /var/run/kubevirt-state: persistent state needs a PVC with volumeMode Filesystem, without readOnly and subPath`},
		{"a Secret", nil, []*runtimeapi.Mount{{ContainerPath: "/seed", HostPath: secretsAt}},
			`container vm: volume mounted at /seed: such volumes are not supported in a VM yet; remove it`},
		{"a Secret for a disk", two, []*runtimeapi.Mount{{ContainerPath: "/data", HostPath: secretsAt}},
			`nodevirt.io/vmi: spec.volumes[1].containerDisk: what is mounted at /data is no image`},
		{"a Secret for nothing", seeded(`"emptyDisk": {"capacity": "1Mi"}`),
			[]*runtimeapi.Mount{{ContainerPath: "/seed", HostPath: secretsAt}},
			`nodevirt.io/vmi: spec.volumes[1]: container vm mounts files, such as a Secret, at /seed, and this volume takes none`},
		{"no Secret", bySecret, nil,
			`nodevirt.io/vmi: spec.volumes[1].cloudInitNoCloud: its Secret is not mounted; mount it at a path that ends in /seed`},
		{"no Secret of a credential", withKeys, nil,
			`nodevirt.io/vmi: spec.accessCredentials[0]: its Secret is not mounted; mount it at a path that ends in /access-credential-0`},
		{"a folder for a credential's Secret", withKeys, []*runtimeapi.Mount{{ContainerPath: "/access-credential-0", HostPath: "/etc"}},
			`nodevirt.io/vmi: spec.accessCredentials[0]: its Secret is not mounted; mount it at a path that ends in /access-credential-0`},
		{"a credential too many", withKeys, []*runtimeapi.Mount{filesAt("access-credential-0", "secret"), filesAt("access-credential-1", "secret")},
			`nodevirt.io/vmi: spec.volumes: container vm mounts a volume at /volumes/access-credential-1, and none of these has the name "access-credential-1"`},
		{"a folder for a Secret", bySecret, []*runtimeapi.Mount{{ContainerPath: "/seed", HostPath: "/srv/kubernetes.io~secret/../../etc"}},
			`container vm: volume mounted at /seed: such volumes are not supported in a VM yet; remove it`},
		{"a ConfigMap", nil, []*runtimeapi.Mount{filesAt("config", "configmap")},
			`container vm: volume mounted at /volumes/config: such volumes are not supported in a VM yet; remove it`},
		{"no ConfigMap", seeded(`"configMap": {"name": "a"}`), nil,
			`nodevirt.io/vmi: spec.volumes[1].configMap: its files are not mounted; mount them at a path that ends in /seed`},
		{"a folder for a ConfigMap", seeded(`"configMap": {"name": "a"}`), []*runtimeapi.Mount{{ContainerPath: "/seed", HostPath: "/etc"}},
			`nodevirt.io/vmi: spec.volumes[1].configMap: its files are not mounted; mount them at a path that ends in /seed`},
		{"a file of a ConfigMap", seeded(`"configMap": {"name": "a"}`), []*runtimeapi.Mount{
			{ContainerPath: "/seed", HostPath: "/var/lib/kubelet/pods/1/volumes/kubernetes.io~configmap/seed/key", Readonly: true}},
			`container vm: volume mounted at /seed: volumes of kind configmap are not supported in a VM yet; remove it`},
		{"a folder's name with escapes", seeded(`"configMap": {"name": "a"}`), []*runtimeapi.Mount{
			{ContainerPath: "/seed", HostPath: "/srv/\x1b/kubernetes.io~configmap/seed"}},
			`container vm: volume mounted at /seed: its path on the node, "/srv/\x1b/kubernetes.io~configmap/seed", is not UTF-8 or has characters that cannot be printed; rename the folder`},
		{"an image for a Secret", bySecret, []*runtimeapi.Mount{imageAt("/seed", "sha256:1")},
			`nodevirt.io/vmi: spec.volumes[1].cloudInitNoCloud: its Secret is not mounted; mount it at a path that ends in /seed`},
		{"a read-only folder", nil, []*runtimeapi.Mount{{ContainerPath: "/data", HostPath: "/srv", Readonly: true}},
			`container vm: volume mounted at /data: a VM writes to its disk, and this is read-only; mount it otherwise, or not at all`},
		{"no PVC", pvcs, []*runtimeapi.Mount{imageAt("/volumes/data", "sha256:1")},
			`nodevirt.io/vmi: spec.volumes[0].persistentVolumeClaim: the container has no such volume; mount the PVC, or name it as a device, at a path that ends in /root
nodevirt.io/vmi: spec.volumes[1].persistentVolumeClaim: what is mounted at /volumes/data is no PVC`},
		{"no folder of a host disk", seeded(`"hostDisk": {"path": "/a", "type": "Disk"}`), []*runtimeapi.Mount{imageAt("/seed", "sha256:1")},
			`nodevirt.io/vmi: spec.volumes[1].hostDisk: what is mounted at /seed is no folder`},
		{"a lun in a folder", lun, []*runtimeapi.Mount{{ContainerPath: "/volumes/root", HostPath: "/srv"}},
			`nodevirt.io/vmi: spec.domain.devices.disks[0].lun: needs a PVC of volumeMode Block, and this one is a file system; use disk`},
		{"blank disks of nothing", map[string]string{vmspec.AnnotationBlankDisks: "a=1Gi,image=1Gi,ro=1Gi"}, []*runtimeapi.Mount{
			imageAt("/image", "sha256:1")},
			`nodevirt.io/blank-disks: the container has no volume "a" but images; mount a PVC at a path that ends in it
nodevirt.io/blank-disks: the container has no volume "image" but images; mount a PVC at a path that ends in it
nodevirt.io/blank-disks: the container has no volume "ro" but images; mount a PVC at a path that ends in it`},
		{"a blank disk on a read-only volume", with(lunless, vmspec.AnnotationBlankDisks, "root=1Gi"),
			[]*runtimeapi.Mount{{ContainerPath: "/volumes/root", HostPath: "/srv", Readonly: true}},
			`nodevirt.io/blank-disks: volume "root" is a device or read-only; leave it out`},
		{"copies of nothing", map[string]string{vmspec.AnnotationMigration: "m", vmspec.AnnotationCopiedVolumes: "data, image,none, more=pvc"}, []*runtimeapi.Mount{
			{ContainerPath: "/data", HostPath: "/srv"}, imageAt("/image", "sha256:1")},
			`nodevirt.io/copied-volumes: the VM has no disk on a volume "image" that it alone writes
nodevirt.io/copied-volumes: the VM has no disk on a volume "none" that it alone writes`},
		{"preallocated volumes of nothing", map[string]string{vmspec.AnnotationPreallocated: "data, image,none"}, []*runtimeapi.Mount{
			{ContainerPath: "/data", HostPath: "/srv"}, imageAt("/image", "sha256:1")},
			`nodevirt.io/preallocated-volumes: the VM has no disk on a volume "image" that it writes
nodevirt.io/preallocated-volumes: the VM has no disk on a volume "none" that it writes`},
		{"origins of nothing", map[string]string{vmspec.AnnotationDiskOrigin: "a=disk,data=b,image=disk"}, []*runtimeapi.Mount{
			{ContainerPath: "/data", HostPath: "/srv"}, imageAt("/image", "sha256:1")},
			`nodevirt.io/disk-origin: the container has no volume "a" but images; mount a PVC at a path that ends in it
nodevirt.io/disk-origin: "b" is no registry disk of this VM; the image's own is "disk"
nodevirt.io/disk-origin: the container has no volume "image" but images; mount a PVC at a path that ends in it`},
		{"one origin of two", map[string]string{vmspec.AnnotationDiskOrigin: "a=disk,b=disk"}, []*runtimeapi.Mount{
			{ContainerPath: "/a", HostPath: "/srv/a"}, {ContainerPath: "/b", HostPath: "/srv/b"}},
			`nodevirt.io/disk-origin: "disk" is the origin of several volumes`},
		{"a folder beside a VMI", two, []*runtimeapi.Mount{imageAt("/data", "sha256:1"), {ContainerPath: "/more", HostPath: "/srv"}},
			`nodevirt.io/vmi: spec.volumes: container vm mounts a volume at /more, and none of these has the name "more"`},
		{"a folder for scratch", seeded(`"emptyDisk": {"capacity": "1Mi"}`), []*runtimeapi.Mount{{ContainerPath: "/seed", HostPath: "/srv"}},
			`nodevirt.io/vmi: spec.volumes[1]: container vm has a volume at /seed, and this one takes none; mount it elsewhere`},
		{"not mounted", two, nil, `nodevirt.io/vmi: spec.volumes[1].containerDisk: the container's own image is that of volume "root"; mount this one's, as an image volume, at a path that ends in /data`},
		{"mounted without a volume", two, []*runtimeapi.Mount{imageAt("/data", "sha256:1"), imageAt("/more", "sha256:2")},
			`nodevirt.io/vmi: spec.volumes: container vm mounts a volume at /more, and none of these has the name "more"`},
		{"two paths", two, []*runtimeapi.Mount{imageAt("/data", "sha256:1", "disk/b")},
			`nodevirt.io/vmi: spec.volumes[1].containerDisk.path: Invalid value: "/disk/a": the mount's subPath says "b"`},
	} {
		t.Run(tt.name, func(t *testing.T) {
			p, c := pod(tt.annotations), container(nil)
			c.Mounts = tt.mounts
			if err := vmspec.ValidateSandbox(p); err != nil {
				t.Errorf("ValidateSandbox: %v", err)
			}
			_, err := vmspec.FromCRI(p, c)
			checkError(t, err, tt.want)
		})
	}
}

// TestBadDevices has pods that are fine but for the block devices of their container.
func TestBadDevices(t *testing.T) {
	for _, tt := range []struct {
		name    string
		devices []*runtimeapi.Device
		want    string
	}{
		{"read-only", []*runtimeapi.Device{{ContainerPath: "/dev/data", HostPath: "/dev/sdb", Permissions: "mr"}},
			`container vm: device /dev/data: a VM writes to its disk, and this is read-only; mount it otherwise, or not at all`},
		{"a name", []*runtimeapi.Device{{ContainerPath: "/dev/Data", HostPath: "/dev/sdb", Permissions: "mrw"}},
			`container vm: device /dev/Data: the last part of the path names the disk, and must be a DNS label (a-z, 0-9 and - inside, at most 63 characters); mount it elsewhere`},
		{"a node's name", []*runtimeapi.Device{{ContainerPath: "/dev/data", HostPath: "/dev/s\xff", Permissions: "mrw"}},
			`container vm: device /dev/data: its path on the node, "/dev/s\xff", is not UTF-8 or has characters that cannot be printed; rename the device`},
		{"one name", []*runtimeapi.Device{{ContainerPath: "/dev/data", HostPath: "/dev/sdb", Permissions: "mrw"},
			{ContainerPath: "/dev/x/data", HostPath: "/dev/sdc", Permissions: "mrw"}},
			`container vm: device /dev/x/data: the disk name "data" is that of /dev/data, too; give one of them another path`},
	} {
		t.Run(tt.name, func(t *testing.T) {
			c := container(nil)
			c.Devices = tt.devices
			_, err := vmspec.FromCRI(pod(nil), c)
			checkError(t, err, tt.want)
		})
	}
}

// TestContainerPathOfItsName: a containerPath may have the name of its path's last part.
func TestContainerPathOfItsName(t *testing.T) {
	c := container(nil)
	c.Mounts = []*runtimeapi.Mount{{ContainerPath: "/run/secrets/cloud", HostPath: "/pods/1/volumes/kubernetes.io~secret/injected", Readonly: true}}
	if _, err := vmspec.FromCRI(pod(vmi(`{"domain": {"devices": {"filesystems": [{"name": "cloud", "virtiofs": {}}]}},
		"volumes": [{"name": "cloud", "containerPath": {"path": "/run/secrets/cloud"}}]}`)), c); err != nil {
		t.Error(err)
	}
}
