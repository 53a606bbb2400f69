package pod

import (
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	kubevirt "kubevirt.io/api/core/v1"

	"github.com/nodevirt/nodevirt/shim/vmspec"
)

// Annotations of PVCs.
const (
	// AnnotationOrigin names the image whose disk a PVC becomes a copy of, at its first
	// use by a VM.
	AnnotationOrigin = vmspec.AnnotationDiskOrigin
	// AnnotationFilled says that this has happened. What a PVC holds later is its guest's,
	// zeros too.
	AnnotationFilled = vmspec.AnnotationPrefix + "disk-filled"
)

// Unfilled returns the image that a PVC must become a copy of before its VM starts;
// "" if there is none.
func Unfilled(pvc metav1.Object) string {
	all := pvc.GetAnnotations()
	if all[AnnotationFilled] != "" {
		return ""
	}
	return all[AnnotationOrigin]
}

// withOrigins returns the instance with a registry disk for each PVC that must become
// a copy of one, and with the annotation by which the node copies it. What the
// instance's own annotation says of a PVC counts more.
func withOrigins(vmi *kubevirt.VirtualMachineInstance, pvcs PVCObjects) *kubevirt.VirtualMachineInstance {
	given := vmi.Annotations[vmspec.AnnotationDiskOrigin]
	own := map[string]bool{}
	var all []string
	for entry := range strings.SplitSeq(given, ",") {
		volume, _, _ := strings.Cut(entry, "=")
		own[strings.TrimSpace(volume)] = true
	}
	var more []kubevirt.Volume
	for _, use := range PVCs(&vmi.Spec) {
		object := pvcs[use.Name]
		if object == nil || !use.Fills() || own[use.Volume] || Unfilled(object) == "" {
			continue
		}
		name := UniqueName(use.Volume, maxLabel, "origin of "+use.Volume)
		more = append(more, kubevirt.Volume{Name: name, VolumeSource: kubevirt.VolumeSource{
			ContainerDisk: &kubevirt.ContainerDiskSource{Image: Unfilled(object)},
		}})
		all = append(all, use.Volume+"="+name)
	}
	if len(more) == 0 {
		return vmi
	}
	if given != "" {
		all = append(all, given)
	}
	vmi = vmi.DeepCopy()
	vmi.Spec.Volumes = append(vmi.Spec.Volumes, more...)
	metav1.SetMetaDataAnnotation(&vmi.ObjectMeta, vmspec.AnnotationDiskOrigin, strings.Join(all, ","))
	return vmi
}
