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
				Hotpluggable:                      Hotpluggable(v),
			}}
		}
	}
	return vmi
}

// SetCopied has the pod of a migration's target, that of [AtDestinations], wait for copies of disks. The guest has got
// some since it runs, whose PVCs other pods hold.
func SetCopied(p *corev1.Pod, vmi *kubevirt.VirtualMachineInstance, got []string) {
	var all []string
	for _, m := range vmi.Status.MigratedVolumes {
		entry := m.VolumeName
		if slices.Contains(got, m.VolumeName) && m.DestinationPVCInfo != nil {
			entry += "=" + m.DestinationPVCInfo.ClaimName
		}
		all = append(all, entry)
	}
	if len(all) > 0 {
		metav1.SetMetaDataAnnotation(&p.ObjectMeta, vmspec.AnnotationCopiedVolumes, strings.Join(all, ","))
	}
}

// Copied returns the volumes that become copies for a target's pod, each with its PVC if the guest has got the disk since
// it runs. The cache keeps what this reads.
func Copied(p *corev1.Pod) map[string]string {
	all := map[string]string{}
	for _, entry := range strings.FieldsFunc(p.Annotations[vmspec.AnnotationCopiedVolumes], isComma) {
		volume, claim, _ := strings.Cut(entry, "=")
		all[volume] = claim
	}
	return all
}

func isComma(r rune) bool { return r == ',' }

// IsAtDestinations reports whether a pod has the PVCs to which a migration copies an instance's disks. The cache keeps
// what this reads.
func IsAtDestinations(vmi *kubevirt.VirtualMachineInstance, p *corev1.Pod) bool {
	copies := Copied(p)
	return !slices.ContainsFunc(vmi.Status.MigratedVolumes, func(m kubevirt.StorageMigratedVolumeInfo) bool {
		if m.DestinationPVCInfo == nil {
			return true
		}
		to := m.DestinationPVCInfo.ClaimName
		return copies[m.VolumeName] != to && !slices.ContainsFunc(p.Spec.Volumes, func(v corev1.Volume) bool {
			return v.PersistentVolumeClaim != nil && v.PersistentVolumeClaim.ClaimName == to
		})
	})
}
