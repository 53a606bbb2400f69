package vmspec

import (
	corev1 "k8s.io/api/core/v1"
	kubevirt "kubevirt.io/api/core/v1"

	"github.com/nodevirt/nodevirt/shim/fields"
)

// PodVolume is a VMI's volume as the cluster reads it, to make the VM's pod.
type PodVolume struct {
	Name string
	Kind VolumeKind
	// Source is the pod's volume, which the VM's container mounts; nil if the pod needs
	// none. Of a registry disk it is the image, which may be the container's instead.
	Source *corev1.VolumeSource
	// PullSecret is the name of the Secret to pull the image with; empty for none.
	PullSecret string
	// ServiceAccount is the name of the pod's; empty for the namespace's default.
	ServiceAccount string
	// Node is the VMI's volume as the node reads it, without what only the pod needs.
	Node kubevirt.Volume
}

// PodVolumes returns what a pod must have for a VMI's volumes, in their order. Kind
// is the first one whose field a volume has; a volume of no kind needs nothing.
func PodVolumes(given []kubevirt.Volume) []PodVolume {
	var all []PodVolume
	for _, g := range given {
		node := g.DeepCopy()
		_, kinds := volumeFields(*node)
		var v PodVolume
		if len(kinds) > 0 && kinds[0].pod != nil {
			v = kinds[0].pod(node)
		}
		if len(kinds) > 0 {
			v.Kind = *kinds[0]
		}
		v.Name, v.Node = g.Name, *node
		all = append(all, v)
	}
	return all
}

// PodFields returns the fields of volumes that a VMI's manifest may have beside those
// of [Supported]: the pod has them, and no node reads them.
func PodFields() []fields.Row {
	return volumeRows(func(k VolumeKind) []fields.Row { return k.podRows })
}

// imageVolume is the image of a registry disk.
func imageVolume(g *kubevirt.Volume) PodVolume {
	d := g.ContainerDisk
	v := PodVolume{
		Source:     &corev1.VolumeSource{Image: &corev1.ImageVolumeSource{Reference: d.Image, PullPolicy: d.ImagePullPolicy}},
		PullSecret: d.ImagePullSecret,
	}
	d.ImagePullSecret = ""
	return v
}

// pvcVolume is a PVC. Whether the VM's container mounts it or has it as a device, its
// volumeMode decides.
func pvcVolume(g *kubevirt.Volume) PodVolume {
	c := g.PersistentVolumeClaim
	c.Hotpluggable = false
	return PodVolume{Source: &corev1.VolumeSource{PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{
		ClaimName: c.ClaimName, ReadOnly: c.ReadOnly,
	}}}
}

// dataVolumePVC is the PVC of a DataVolume.
func dataVolumePVC(g *kubevirt.Volume) PodVolume {
	g.PersistentVolumeClaim = &kubevirt.PersistentVolumeClaimVolumeSource{
		PersistentVolumeClaimVolumeSource: corev1.PersistentVolumeClaimVolumeSource{ClaimName: g.DataVolume.Name},
	}
	g.DataVolume = nil
	return pvcVolume(g)
}

// ephemeralVolume is a PVC that the pod can't write.
func ephemeralVolume(g *kubevirt.Volume) PodVolume {
	c := g.Ephemeral.PersistentVolumeClaim
	if c == nil { // admission has refused it
		return PodVolume{}
	}
	return PodVolume{Source: &corev1.VolumeSource{PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{
		ClaimName: c.ClaimName, ReadOnly: true,
	}}}
}

// seedSecrets are the Secrets that a cloud-init volume names, in one folder. The
// kubelet reads them: the controller may not.
func seedSecrets(g *kubevirt.Volume) PodVolume {
	var sources []corev1.VolumeProjection
	seen := map[string]bool{}
	c := cloudInitOf(*g)
	for _, ref := range []*corev1.LocalObjectReference{c.UserDataSecretRef, c.NetworkDataSecretRef} {
		if ref != nil && !seen[ref.Name] {
			seen[ref.Name] = true
			sources = append(sources, corev1.VolumeProjection{Secret: &corev1.SecretProjection{LocalObjectReference: *ref}})
		}
	}
	if len(sources) == 0 {
		return PodVolume{}
	}
	return PodVolume{Source: &corev1.VolumeSource{Projected: &corev1.ProjectedVolumeSource{Sources: sources}}}
}
