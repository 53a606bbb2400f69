package pod_test

import (
	"testing"

	"gotest.tools/v3/assert"
	corev1 "k8s.io/api/core/v1"
	kubevirt "kubevirt.io/api/core/v1"

	"github.com/nodevirt/nodevirt/controller/pod"
	"github.com/nodevirt/nodevirt/shim/vmspec"
)

// TestPreallocated reads the annotations that KubeVirt reads, and has the node know of the volumes that the guest writes.
func TestPreallocated(t *testing.T) {
	for key, want := range map[string]bool{
		"cdi.kubevirt.io/storage.preallocation":           true,
		"cdi.kubevirt.io/storage.preallocation.requested": true,
		"kubevirt.io/storage.thick-provisioned":           true,
		"cdi.kubevirt.io/storage.usePopulator":            false,
		"storage.preallocation":                           false,
	} {
		for value, is := range map[string]bool{"true": want, "false": false, "": false} {
			pvc := new(corev1.PersistentVolumeClaim)
			pvc.Annotations = map[string]string{key: value}
			assert.Equal(t, pod.Preallocated(pvc), is, "%s=%s", key, value)
		}
	}
	thick := func(name string) kubevirt.Volume {
		return kubevirt.Volume{Name: name, VolumeSource: kubevirt.VolumeSource{PersistentVolumeClaim: &kubevirt.PersistentVolumeClaimVolumeSource{
			PersistentVolumeClaimVolumeSource: corev1.PersistentVolumeClaimVolumeSource{ClaimName: "thick"},
		}}}
	}
	vmi := read(t, "pvcs")
	vmi.Spec.Volumes = append(vmi.Spec.Volumes, thick("written"), thick("read"))
	vmi.Spec.Domain.Devices.Disks = append(vmi.Spec.Domain.Devices.Disks, kubevirt.Disk{Name: "written"},
		kubevirt.Disk{Name: "read", DiskDevice: kubevirt.DiskDevice{Disk: &kubevirt.DiskTarget{Bus: kubevirt.DiskBusVirtio, ReadOnly: true}}})
	p, err := pod.New(vmi, pvcObjects(t), nil, pod.Options{RuntimeClass: "vm", StubImage: "registry.example.com/stub:1"})
	assert.NilError(t, err)
	assert.Equal(t, p.Annotations[vmspec.AnnotationPreallocated], "written")
	assert.Assert(t, pvcObjects(t).Info("thick").Preallocated)
	assert.Assert(t, !pvcObjects(t).Info("files").Preallocated)
}
