package pod_test

import (
	"reflect"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/yaml"

	"github.com/nodevirt/nodevirt/controller/pod"
	"github.com/nodevirt/nodevirt/shim/vmspec"
)

// networkDisks are those of the instances in testdata.
func networkDisks(t *testing.T, name string) pod.NetworkDisks {
	t.Helper()
	all := pod.NetworkDisks{}
	if name != "netdisks" {
		return all
	}
	for volume, text := range map[string]string{
		"root": `{"iscsi": {"targetPortal": "10.0.0.1", "portals": ["10.0.0.2:3261"], "iqn": "iqn.2026-11.com.example:disk", "lun": 1,
			"initiatorName": "iqn.2026-11.com.example:node", "chapAuthSession": true, "secretRef": {"name": "chap"}}}`,
		"tape":  `{"iscsi": {"targetPortal": "10.0.0.1:3260", "iqn": "iqn.2026-11.com.example:tape", "lun": 0, "readOnly": true}}`,
		"image": `{"rbd": {"monitors": ["10.0.0.1:3300"], "pool": "vms", "image": "disk", "user": "nodevirt", "secretRef": {"name": "ceph", "namespace": "default"}}}`,
	} {
		disk, is, err := pod.NetworkDisk(pod.PVC{Volume: volume, Name: volume + "-pvc"}, pvcOf("ReadWriteOnce"), pvOf(t, text))
		if err != nil || !is {
			t.Fatalf("%s: %t, %v", volume, is, err)
		}
		all[volume] = disk
	}
	return all
}

func pvcOf(mode corev1.PersistentVolumeAccessMode) *corev1.PersistentVolumeClaim {
	pvc := new(corev1.PersistentVolumeClaim)
	pvc.Namespace, pvc.Spec.AccessModes = "default", []corev1.PersistentVolumeAccessMode{mode}
	return pvc
}

// pvOf is a PersistentVolume of a source.
func pvOf(t *testing.T, source string) *corev1.PersistentVolume {
	t.Helper()
	pv := new(corev1.PersistentVolume)
	pv.Name = "pv1"
	if err := yaml.UnmarshalStrict([]byte(source), &pv.Spec); err != nil {
		t.Fatal(err)
	}
	return pv
}

// TestNetworkDisk is what a node learns of a volume.
func TestNetworkDisk(t *testing.T) {
	iscsi := func(more string) string {
		return `{"iscsi": {"targetPortal": "10.0.0.1", "iqn": "iqn.2026-11.com.example:disk", "lun": 2` + more + `}}`
	}
	rbd := func(more string) string {
		return `{"rbd": {"monitors": ["10.0.0.1"], "image": "disk", "pool": "rbd", "user": "admin"` + more + `}}`
	}
	of := func(change func(*vmspec.NetworkDisk)) vmspec.NetworkDisk {
		d := vmspec.NetworkDisk{PVC: "data", Volume: "pv1", ISCSI: &vmspec.ISCSIVolume{
			Portals: []string{"10.0.0.1:3260"}, Target: "iqn.2026-11.com.example:disk", LUN: 2,
		}}
		change(&d)
		return d
	}
	use := pod.PVC{Volume: "root", Name: "data"}
	reads, ephemeral := use, use
	reads.ReadOnly, ephemeral.Ephemeral = true, true
	for name, tt := range map[string]struct {
		use    pod.PVC
		mode   corev1.PersistentVolumeAccessMode
		source string
		want   *vmspec.NetworkDisk
		err    string
	}{
		"least":            {use, "ReadWriteOnce", iscsi(``), new(of(func(*vmspec.NetworkDisk) {})), ""},
		"shared":           {use, "ReadWriteMany", iscsi(``), new(of(func(d *vmspec.NetworkDisk) { d.Shared = true })), ""},
		"read":             {reads, "ReadWriteOnce", iscsi(``), new(of(func(d *vmspec.NetworkDisk) { d.ReadOnly = true })), ""},
		"read-only volume": {use, "ReadWriteOnce", iscsi(`, "readOnly": true`), new(of(func(d *vmspec.NetworkDisk) { d.ReadOnly = true })), ""},
		"portals": {use, "ReadWriteOnce", iscsi(`, "portals": ["10.0.0.1:3260", "fd00::1", "[fd00::2]:3261", "san.example.com"]`), new(of(func(d *vmspec.NetworkDisk) {
			d.ISCSI.Portals = []string{"10.0.0.1:3260", "[fd00::1]:3260", "[fd00::2]:3261", "san.example.com:3260"}
		})), ""},
		"Secret of discovery alone": {use, "ReadWriteOnce", iscsi(`, "chapAuthDiscovery": true, "secretRef": {"name": "chap"}`), new(of(func(*vmspec.NetworkDisk) {})), ""},
		"ephemeral":                 {ephemeral, "ReadWriteOnce", iscsi(``), nil, ""},
		"another type":              {use, "ReadWriteOnce", `{"nfs": {"server": "a", "path": "/b"}}`, nil, ""},
		"ceph-csi's": {use, "ReadWriteOnce", `{"csi": {"driver": "rbd.csi.ceph.com", "volumeHandle": "0001-0009-rook-ceph-0000000000000002-1", "volumeAttributes":
			{"clusterID": "rook-ceph", "pool": "vms", "imageName": "csi-vol-1"}, "nodeStageSecretRef": {"name": "csi-rbd-node", "namespace": "rook-ceph"}}}`, nil, ""},
		"no Secret": {use, "ReadWriteOnce", iscsi(`, "chapAuthSession": true`), nil, "PVC data: PersistentVolume pv1: chapAuthSession needs a secretRef"},
		"another namespace's Secret": {use, "ReadWriteOnce", iscsi(`, "chapAuthSession": true, "secretRef": {"name": "chap", "namespace": "storage"}`), nil,
			"its Secret chap is in namespace storage, and pods mount only Secrets of their namespace; create the Secret in namespace default"},
		"bad name": {use, "ReadWriteOnce", strings.Replace(iscsi(``), "example:disk", "example:disk/", 1), nil, "is no iSCSI name of a target"},
		"no key":   {use, "ReadWriteOnce", rbd(``), nil, "a Secret with the user's key is missing"},
		"RBD": {use, "ReadWriteOnce", rbd(`, "secretRef": {"name": "ceph"}`), &vmspec.NetworkDisk{
			PVC: "data", Volume: "pv1", SecretName: "ceph", SecretMount: pod.UniqueName("root", 63, "credentials of root"),
			RBD: &vmspec.RBDVolume{Monitors: []string{"10.0.0.1:6789"}, Pool: "rbd", Image: "disk", User: "admin"},
		}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			got, is, err := pod.NetworkDisk(tt.use, pvcOf(tt.mode), pvOf(t, tt.source))
			switch {
			case tt.err != "":
				if err == nil || !strings.Contains(err.Error(), tt.err) {
					t.Errorf("%v; want %s", err, tt.err)
				}
			case err != nil || is != (tt.want != nil):
				t.Errorf("%t, %v", is, err)
			case is && !reflect.DeepEqual(got, *tt.want):
				t.Errorf("%+v %+v; want %+v", got, got.ISCSI, *tt.want)
			}
		})
	}
}

// TestUnfilledNetworkDisk: no node copies an image to a network disk.
func TestUnfilledNetworkDisk(t *testing.T) {
	vmi := read(t, "least")
	addPVC(vmi, "new", vmi.Spec.Domain.Devices.Disks[0].DiskDevice)
	disks := pod.NetworkDisks{"pvc": networkDisks(t, "netdisks")["root"]}
	_, err := pod.New(vmi, pvcObjects(t), disks, pod.Options{RuntimeClass: "vm"})
	if err == nil || !strings.Contains(err.Error(), "volume pvc: PVC new is a network disk, which no node fills from an image") {
		t.Error(err)
	}
}
