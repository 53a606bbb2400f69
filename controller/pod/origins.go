package pod

import (
	"cmp"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	kubevirt "kubevirt.io/api/core/v1"

	"github.com/nodevirt/nodevirt/shim/vmspec"
)

// Annotations of PVCs.
const (
	// AnnotationOrigin names the image whose disk a PVC becomes a copy of, at its first
	// use by a VM.
	AnnotationOrigin = vmspec.AnnotationDiskOrigin
	// AnnotationFilled says that this has happened, also by an instance's own annotation. What
	// a PVC holds later is its guest's, zeros too.
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

// cdiSource are the annotations by which users ask CDI to fill a PVC: from a server, by an upload, or from another PVC.
func cdiSource() []string {
	return []string{
		"cdi.kubevirt.io/storage.import.endpoint", "cdi.kubevirt.io/storage.import.source", "cdi.kubevirt.io/storage.upload.target",
		"k8s.io/CloneRequest",
	}
}

// CDI's annotations: the phase of the pod that fills a PVC, that a PVC is a copy now, and for which DataVolume it has its
// content.
const (
	cdiPhase  = "cdi.kubevirt.io/storage.pod.phase"
	cdiCopied = "k8s.io/CloneOf"
	cdiFilled = "cdi.kubevirt.io/storage.populatedFor"
)

// AnnotationsOfCDI returns the annotations that [FillsByCDI] reads.
func AnnotationsOfCDI() []string { return append(cdiSource(), cdiPhase, cdiCopied, cdiFilled) }

// FillsByCDI reports whether CDI has been asked to fill a PVC without a DataVolume, and has not yet. A guest must not use it
// before: what CDI finds there it keeps, or replaces under the guest.
func FillsByCDI(pvc metav1.Object) bool {
	if owner := metav1.GetControllerOf(pvc); owner != nil && owner.Kind == "DataVolume" { // which says so
		return false
	}
	all := pvc.GetAnnotations()
	if all[cdiPhase] == string(corev1.PodSucceeded) || all[cdiCopied] == "true" || all[cdiFilled] != "" {
		return false
	}
	return slices.ContainsFunc(cdiSource(), func(key string) bool {
		_, asked := all[key]
		return asked
	})
}

// Unmarked reports whether a PVC has no mark yet, although a running instance has made it a copy of a registry disk: by
// the PVC's annotation or by its own.
func Unmarked(vmi *kubevirt.VirtualMachineInstance, use PVC, pvc metav1.Object) bool {
	if !use.Fills() || pvc.GetAnnotations()[AnnotationFilled] != "" {
		return false
	}
	return Unfilled(pvc) != "" || slices.ContainsFunc(ownOrigins(vmi), func(o ownOrigin) bool { return o.volume == use.Volume })
}

// ownOrigin is an entry of an instance's own annotation: the volume, and the registry disk that it becomes a copy of.
type ownOrigin struct{ volume, disk string }

func (o ownOrigin) String() string { return o.volume + "=" + o.disk }

func ownOrigins(vmi *kubevirt.VirtualMachineInstance) (all []ownOrigin) {
	for entry := range strings.SplitSeq(vmi.Annotations[vmspec.AnnotationDiskOrigin], ",") {
		if volume, disk, ok := strings.Cut(entry, "="); ok {
			all = append(all, ownOrigin{strings.TrimSpace(volume), strings.TrimSpace(disk)})
		}
	}
	return all
}

// withoutFilled returns the instance without the registry disks, and without their entries in its annotation, of the
// PVCs that are copies of them already. What such a PVC holds is its guest's, zeros too: the node would take zeros for
// a PVC that is new. Spare is the registry disk of the VM's container, if that is removed.
func withoutFilled(
	vmi *kubevirt.VirtualMachineInstance, pvcs PVCObjects,
) (_ *kubevirt.VirtualMachineInstance, spare *kubevirt.ContainerDiskSource) {
	var filled, left []ownOrigin
	uses := PVCs(&vmi.Spec)
	for _, o := range ownOrigins(vmi) {
		i := slices.IndexFunc(uses, func(use PVC) bool { return use.Volume == o.volume })
		if i >= 0 && pvcs[uses[i].Name] != nil && pvcs[uses[i].Name].Annotations[AnnotationFilled] != "" {
			filled = append(filled, o)
		} else {
			left = append(left, o)
		}
	}
	if len(filled) == 0 {
		return vmi, nil
	}
	vmi = vmi.DeepCopy()
	delete(vmi.Annotations, vmspec.AnnotationDiskOrigin)
	if len(left) > 0 {
		var entries []string
		for _, o := range left {
			entries = append(entries, o.String())
		}
		vmi.Annotations[vmspec.AnnotationDiskOrigin] = strings.Join(entries, ",")
	}
	for _, o := range filled {
		if !slices.ContainsFunc(left, func(other ownOrigin) bool { return other.disk == o.disk }) {
			spare = cmp.Or(spare, replaceDisk(&vmi.Spec, o))
		}
	}
	return vmi, spare
}

// replaceDisk removes a registry disk, whose place in the boot order the volume gets. It returns the disk if the VM's
// container has its image, and nil otherwise.
func replaceDisk(s *kubevirt.VirtualMachineInstanceSpec, o ownOrigin) (own *kubevirt.ContainerDiskSource) {
	from := VolumeOf(s, o.disk)
	if from == nil || from.ContainerDisk == nil {
		return nil
	}
	if b, err := boot(s, ""); err == nil && b.volume == o.disk {
		own = from.ContainerDisk
		if kernel := kernelImage(s); kernel != nil && kernel.Image == "" {
			kernel.Image, kernel.ImagePullPolicy, kernel.ImagePullSecret = own.Image, own.ImagePullPolicy, own.ImagePullSecret
		}
	}
	disks := &s.Domain.Devices.Disks
	if to, place := DiskOf(s, o.volume), placeOf(s, o.disk); to != nil && to.BootOrder == nil {
		to.BootOrder = place
	}
	isFrom := func(name string) bool { return name == o.disk }
	s.Volumes = slices.DeleteFunc(s.Volumes, func(v kubevirt.Volume) bool { return isFrom(v.Name) })
	*disks = slices.DeleteFunc(*disks, func(d kubevirt.Disk) bool { return isFrom(d.Name) })
	return own
}

// placeOf returns a disk's place in the boot order; nil for none. Where no device has one, the first disk boots.
func placeOf(s *kubevirt.VirtualMachineInstanceSpec, disk string) *uint {
	if d := DiskOf(s, disk); d != nil && d.BootOrder != nil {
		return d.BootOrder
	}
	first := slices.IndexFunc(s.Domain.Devices.Disks, func(d kubevirt.Disk) bool { return d.CDRom == nil })
	if first >= 0 && s.Domain.Devices.Disks[first].Name == disk && !saysBoot(s) {
		return new(uint(1))
	}
	return nil
}

// withOrigins returns the instance with a registry disk for each PVC that must become
// a copy of one, and with the annotation by which the node copies it. What the
// instance's own annotation says of a PVC counts more.
func withOrigins(vmi *kubevirt.VirtualMachineInstance, pvcs PVCObjects) *kubevirt.VirtualMachineInstance {
	given := vmi.Annotations[vmspec.AnnotationDiskOrigin]
	own := map[string]bool{}
	var all []string
	for _, o := range ownOrigins(vmi) {
		own[o.volume] = true
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
