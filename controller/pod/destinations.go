package pod

import (
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	kubevirt "kubevirt.io/api/core/v1"

	"github.com/nodevirt/nodevirt/shim/vmspec"
)

// ClaimOf returns the name of the PVC of a volume that is a PVC or a DataVolume; "" for another.
func ClaimOf(v *kubevirt.Volume) string {
	switch {
	case v == nil:
		return ""
	case v.PersistentVolumeClaim != nil:
		return v.PersistentVolumeClaim.ClaimName
	case v.DataVolume != nil:
		return v.DataVolume.Name
	}
	return ""
}

// AtDestinations returns an instance with the PVCs to which its next migration copies disks.
func AtDestinations(vmi *kubevirt.VirtualMachineInstance) *kubevirt.VirtualMachineInstance {
	if len(vmi.Status.MigratedVolumes) == 0 {
		return vmi
	}
	vmi = vmi.DeepCopy()
	for _, m := range vmi.Status.MigratedVolumes {
		if v := VolumeOf(&vmi.Spec, m.VolumeName); v != nil && m.DestinationPVCInfo != nil {
			v.VolumeSource = kubevirt.VolumeSource{PersistentVolumeClaim: &kubevirt.PersistentVolumeClaimVolumeSource{
				PersistentVolumeClaimVolumeSource: corev1.PersistentVolumeClaimVolumeSource{ClaimName: m.DestinationPVCInfo.ClaimName},
			}}
		}
	}
	return vmi
}

// SetCopied has the pod of a migration's target, that of [AtDestinations], wait for copies of disks.
func SetCopied(p *corev1.Pod, vmi *kubevirt.VirtualMachineInstance) {
	var names []string
	for _, m := range vmi.Status.MigratedVolumes {
		names = append(names, m.VolumeName)
	}
	if len(names) > 0 {
		metav1.SetMetaDataAnnotation(&p.ObjectMeta, vmspec.AnnotationCopiedVolumes, strings.Join(names, ","))
	}
}

// Copied returns the names of the volumes of a target's pod that become copies. The cache keeps what this reads.
func Copied(p *corev1.Pod) []string {
	text := p.Annotations[vmspec.AnnotationCopiedVolumes]
	if text == "" {
		return nil
	}
	return strings.Split(text, ",")
}

// IsAtDestinations reports whether a pod has the PVCs to which a migration copies an instance's disks. The cache keeps
// what this reads.
func IsAtDestinations(vmi *kubevirt.VirtualMachineInstance, p *corev1.Pod) bool {
	return !slices.ContainsFunc(vmi.Status.MigratedVolumes, func(m kubevirt.StorageMigratedVolumeInfo) bool {
		return m.DestinationPVCInfo == nil || !slices.ContainsFunc(p.Spec.Volumes, func(v corev1.Volume) bool {
			return v.PersistentVolumeClaim != nil && v.PersistentVolumeClaim.ClaimName == m.DestinationPVCInfo.ClaimName
		})
	})
}
