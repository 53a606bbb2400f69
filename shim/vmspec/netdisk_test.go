package vmspec_test

import (
	"strings"
	"testing"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/nodevirt/nodevirt/shim/vmspec"
)

// onISCSI is the annotation of a disk root whose fields are changed by old and new texts.
func onISCSI(change ...string) string {
	return strings.NewReplacer(change...).Replace(`{"root": {"pvc": "data", "volume": "pv1", "secretName": "chap", "secretMount": "root-abcde",
		"iscsi": {"portals": ["10.0.0.1:3260"], "target": "iqn.2026-11.com.example:disk", "lun": 1, "initiator": "iqn.2026-11.com.example:node"}}}`)
}

func onRBD(change ...string) string {
	return strings.NewReplacer(change...).Replace(`{"root": {"pvc": "data", "volume": "pv1", "secretName": "ceph", "secretMount": "root-abcde",
		"rbd": {"monitors": ["10.0.0.1:3300"], "pool": "vms", "image": "disk", "user": "nodevirt"}}}`)
}

func TestParseNetworkDisks(t *testing.T) {
	for _, tt := range []struct{ text, want string }{
		{onISCSI(), ""},
		{onRBD(), ""},
		{onISCSI("10.0.0.1:3260", "[fd00::1]:3260", "iqn.2026-11.com.example:disk", "naa.52004567BA64678D"), ""},
		{`{}`, "0 disks; name 1 to 64"},
		{onISCSI() + "{}", "more than one JSON object"},
		{onISCSI(`"lun"`, `"password": "x", "lun"`), `unknown field "password"`},
		{onISCSI("example:disk", "example:disk/"), `volume "root": "iqn.2026-11.com.example:disk/" is no iSCSI name of a target`},
		{onISCSI("example:disk", "example:disk/2,file=/etc/shadow"), "is no iSCSI name of a target"},
		{onISCSI("example:node", "example:Node"), "is no iSCSI name of an initiator"},
		{onISCSI(`"lun": 1`, `"lun": -1`), "LUN -1 is not between 0 and 16383"},
		{onISCSI("10.0.0.1:3260", "10.0.0.1"), `portal "10.0.0.1" is no address or host name with a port`},
		{onISCSI("10.0.0.1:3260", "/run/x:1"), "is no address or host name with a port"},
		{onISCSI("10.0.0.1:3260", "10.0.0.1:0"), "is no address or host name with a port"},
		{onISCSI(`"10.0.0.1:3260"`, ``), "0 portals; use 1 to 16"},
		{onISCSI(`"10.0.0.1:3260"`, strings.Repeat(`"10.0.0.1:3260", `, 16)+`"10.0.0.2:3260"`), "17 portals; use 1 to 16"},
		{onISCSI(`"secretName": "chap", `, ``), "secretName and secretMount go together"},
		{onISCSI(`root-abcde`, `../x`), "is no mounted Secret"},
		{onISCSI(`"volume": "pv1"`, `"volume": ""`), "name the PVC and its PersistentVolume"},
		{onISCSI(`"iscsi"`, `"rbd": {}, "iscsi"`), "name iscsi or rbd"},
		{onRBD(`"secretName": "ceph", "secretMount": "root-abcde",`, ``), "a Secret with the user's key is missing"},
		{onRBD(`"disk"`, `"disk:conf=/etc/passwd"`), "is no name of a pool, an image or a user"},
		{onRBD(`"10.0.0.1:3300"`, ``), "0 monitors; use 1 to 16"},
	} {
		_, err := vmspec.ParseNetworkDisks(tt.text)
		if tt.want == "" && err != nil || tt.want != "" && (err == nil || !strings.Contains(err.Error(), tt.want)) {
			t.Errorf("%s: %v; want %q", tt.text, err, tt.want)
		}
	}
}

// TestNetworkDisksOfAPod: what the annotation says must fit the volumes and the mounts.
func TestNetworkDisksOfAPod(t *testing.T) {
	secret := filesAt("root-abcde", "secret")
	on := func(disk, volume string) map[string]string {
		return vmi(`{"domain": {"devices": {"disks": [{"name": "root", ` + disk + `}]}}, "volumes": [{"name": "root", ` + volume + `}]}`)
	}
	const pvc = `"persistentVolumeClaim": {"claimName": "data"}`
	for name, tt := range map[string]struct {
		annotations map[string]string
		disks       string
		mounts      []*runtimeapi.Mount
		want        string
	}{
		"no Secret":      {on(`"disk": {}`, pvc), onISCSI(), nil, "Secret chap is not mounted; mount it at a path that ends in /root-abcde"},
		"no PVC":         {on(`"disk": {}`, `"containerDisk": {"image": "a"}`), onISCSI(), []*runtimeapi.Mount{secret}, `the VM has no volume "root" that is a PVC`},
		"no VMI":         {map[string]string{}, onISCSI(), nil, `the VM has no volume "root" that is a PVC`},
		"another volume": {on(`"disk": {}`, pvc), onISCSI(`"root"`, `"data"`), []*runtimeapi.Mount{secret, {ContainerPath: "/root", HostPath: "/srv"}}, `no volume "data"`},
		"mounted, too": {on(`"disk": {}`, pvc), onISCSI(), []*runtimeapi.Mount{secret, {ContainerPath: "/volumes/root", HostPath: "/srv"}},
			"this one takes none"},
		"a lun on Ceph": {on(`"lun": {}`, pvc), onRBD(), []*runtimeapi.Mount{secret}, "an RBD image takes no SCSI commands"},
		"block size": {on(`"disk": {"bus": "virtio"}, "blockSize": {"matchVolume": {}}`, pvc), onISCSI(), []*runtimeapi.Mount{secret},
			"does not know the block size of a network disk"},
		"filled": {with(on(`"disk": {}`, pvc), vmspec.AnnotationBlankDisks, "root=1Gi"), onISCSI(), []*runtimeapi.Mount{secret}, `no volume "root" but images`},
	} {
		t.Run(name, func(t *testing.T) {
			c := container(&runtimeapi.LinuxContainerResources{MemoryLimitInBytes: 1 << 30})
			c.Mounts = tt.mounts
			_, err := vmspec.FromCRI(pod(with(tt.annotations, vmspec.AnnotationNetworkDisks, tt.disks)), c)
			if err == nil || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("%v; want %q", err, tt.want)
			}
		})
	}
}
