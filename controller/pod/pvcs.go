package pod

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	kubevirt "kubevirt.io/api/core/v1"

	"github.com/nodevirt/nodevirt/shim/vmspec"
)

// PVC is how an instance uses a PVC.
type PVC struct {
	// Volume is the name of the instance's volume, Name that of the PVC.
	Volume, Name string
	// ReadOnly says that the guest can't write the PVC.
	ReadOnly bool
	// LUN says that the PVC must be a SCSI device.
	LUN bool
	// Shareable says that guests of several instances write the PVC.
	Shareable bool
	// Ephemeral says that the guest's writes do not reach the PVC.
	Ephemeral bool
	// Filesystem says that the guest mounts the PVC, or that its memory is dumped to it: it is
	// no disk then.
	Filesystem bool
	// Dump says that the guest's memory is dumped to the PVC.
	Dump bool
	// DataVolume says that the volume names a DataVolume, whose PVC has its name.
	DataVolume bool
}

// Fills reports whether the node can make the PVC a copy of an image for the instance.
func (c PVC) Fills() bool { return !c.ReadOnly && !c.Filesystem }

// PVCs returns the PVCs that an instance uses, in the order of its volumes.
func PVCs(s *kubevirt.VirtualMachineInstanceSpec) []PVC {
	var all []PVC
	for _, v := range vmspec.PodVolumes(s.Volumes) {
		if v.Source == nil || v.Source.PersistentVolumeClaim == nil {
			continue
		}
		c := v.Source.PersistentVolumeClaim
		use := PVC{Volume: v.Name, Name: c.ClaimName, ReadOnly: c.ReadOnly, DataVolume: v.Kind.Field == vmspec.FieldDataVolume,
			Ephemeral: v.Kind.Source == vmspec.SourceEphemeral, Dump: v.Kind.Source == vmspec.SourceMemoryDump}
		for _, d := range s.Domain.Devices.Disks {
			if d.Name != v.Name {
				continue
			}
			use.LUN = d.LUN != nil
			use.Shareable = d.Shareable != nil && *d.Shareable
			use.ReadOnly = use.ReadOnly || OnlyRead(&d) || d.LUN != nil && d.LUN.ReadOnly
		}
		use.Filesystem = use.Dump || slices.ContainsFunc(s.Domain.Devices.Filesystems, func(f kubevirt.Filesystem) bool { return f.Name == v.Name })
		all = append(all, use)
	}
	return all
}

// PVCObjects are the PVCs of an instance's namespace by their names, as far as the
// instance uses them.
type PVCObjects map[string]*corev1.PersistentVolumeClaim

// Info returns what an instance reports of a PVC; nil if it does not exist.
func (c PVCObjects) Info(name string) *kubevirt.PersistentVolumeClaimInfo {
	pvc := c[name]
	if pvc == nil {
		return nil
	}
	return &kubevirt.PersistentVolumeClaimInfo{
		ClaimName: name, AccessModes: pvc.Spec.AccessModes, VolumeMode: pvc.Spec.VolumeMode,
		Capacity: pvc.Status.Capacity, Requests: pvc.Spec.Resources.Requests, Preallocated: Preallocated(pvc),
	}
}

// volumes returns the volumes of an instance that are PVCs, by their names, and what
// is wrong with one of them.
func (c PVCObjects) volumes(s *kubevirt.VirtualMachineInstanceSpec, network NetworkDisks) (map[string]pvcVolume, error) {
	all := map[string]pvcVolume{}
	for _, use := range PVCs(s) {
		object := c[use.Name]
		if object == nil {
			return nil, fmt.Errorf("volume %s: PVC %s does not exist", use.Volume, use.Name)
		}
		v := pvcVolume{PVC: use, object: object, block: IsBlock(object)}
		if disk, ok := network[use.Volume]; ok {
			v.network, v.ReadOnly = &disk, v.ReadOnly || disk.ReadOnly
			if Unfilled(object) != "" {
				return nil, fmt.Errorf("volume %s: PVC %s is a network disk, which no node fills from an image; remove its annotation %s",
					use.Volume, use.Name, AnnotationOrigin)
			}
		}
		if use.Filesystem && v.block {
			return nil, fmt.Errorf("volume %s: PVC %s has volumeMode Block, and filesystems and memory dumps need Filesystem", use.Volume, use.Name)
		}
		if use.LUN && !v.block && v.network == nil {
			return nil, fmt.Errorf("volume %s: PVC %s has volumeMode Filesystem, and a lun needs Block; use disk", use.Volume, use.Name)
		}
		if use.Shareable && slices.Contains(object.Spec.AccessModes, corev1.ReadWriteOncePod) {
			return nil, fmt.Errorf("volume %s: PVC %s is of access mode ReadWriteOncePod, which no two VMs share; "+
				"leave shareable out, or use another PVC", use.Volume, use.Name)
		}
		all[use.Volume] = v
	}
	return all, nil
}

// pvcVolume is a volume with its PVC.
type pvcVolume struct {
	PVC
	object *corev1.PersistentVolumeClaim
	block  bool
	// network is what QEMU opens in place of a mount; nil for none.
	network *vmspec.NetworkDisk
}

// AnnotationPreallocation is CDI's annotation of a PVC whose storage is allocated in advance.
const AnnotationPreallocation = "cdi.kubevirt.io/storage.preallocation"

// Preallocated reports whether the storage of a PVC is allocated in advance: by the annotations that KubeVirt reads, with
// any prefix.
func Preallocated(pvc metav1.Object) bool {
	for key, value := range pvc.GetAnnotations() {
		_, name, _ := strings.Cut(key, "/")
		if value == "true" && (strings.HasPrefix(name, "storage.preallocation") || strings.HasPrefix(name, "storage.thick-provisioned")) {
			return true
		}
	}
	return false
}

// addPVCs asks the node to create disks in the file systems that have none, as KubeVirt
// does: such a PVC was just provisioned. And it says whose storage is allocated in advance.
func addPVCs(annotations map[string]string, volumes map[string]pvcVolume) {
	var blank, preallocated []string
	for name, v := range volumes {
		if Preallocated(v.object) && !v.ReadOnly && !v.Filesystem && !v.Ephemeral {
			preallocated = append(preallocated, name)
		}
		if size := v.size(); !v.block && v.network == nil && !v.ReadOnly && !v.Filesystem && size > 0 {
			blank = append(blank, name+"="+strconv.FormatInt(size, 10))
		}
	}
	if slices.Sort(blank); len(blank) > 0 {
		annotations[vmspec.AnnotationBlankDisks] = strings.Join(blank, ",")
	}
	if slices.Sort(preallocated); len(preallocated) > 0 {
		annotations[vmspec.AnnotationPreallocated] = strings.Join(preallocated, ",")
	}
}

// size returns the size of the PVC in bytes: what was requested, since a volume may
// have more than the user asked for; 0 if that is unknown.
func (c pvcVolume) size() int64 {
	requested, capacity := c.object.Spec.Resources.Requests[corev1.ResourceStorage], c.object.Status.Capacity[corev1.ResourceStorage]
	switch {
	case requested.IsZero():
		return capacity.Value()
	case capacity.IsZero() || requested.Cmp(capacity) < 0:
		return requested.Value()
	}
	return capacity.Value()
}

// IsBlock reports whether containers get a PVC as a device.
func IsBlock(pvc *corev1.PersistentVolumeClaim) bool {
	return pvc.Spec.VolumeMode != nil && *pvc.Spec.VolumeMode == corev1.PersistentVolumeBlock
}
