package measures

import (
	"cmp"

	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"
	kubevirt "kubevirt.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/nodevirt/nodevirt/controller/pod"
)

// disks reports the PVCs of VMs.
type disks struct{ set }

const (
	diskSize      = "vm_disk_allocated_size_bytes"
	restoredDisks = "vmsnapshot_disks_restored_from_source"
	restoredBytes = "vmsnapshot_disks_restored_from_source_bytes"
)

func newDisks() disks {
	d := disks{set{}}
	d.add(diskSize, "Size of a PVC of a VM's template.", "name", "namespace", "persistentvolumeclaim", "volume_mode", "device")
	d.add(restoredDisks, "PVCs that were restored from snapshots of a VM.", "vm_name", "vm_namespace")
	d.add(restoredBytes, "Size of the PVCs that were restored from snapshots of a VM.", "vm_name", "vm_namespace")
	return d
}

func (d disks) collect(all *objects, send sender) {
	sources, sizes := map[client.ObjectKey]float64{}, map[client.ObjectKey]float64{}
	by := make(map[client.ObjectKey]*corev1.PersistentVolumeClaim, len(all.pvcs.Items))
	for i := range all.pvcs.Items {
		one := &all.pvcs.Items[i]
		by[client.ObjectKeyFromObject(one)] = one
		if of := one.Labels[pod.RestoredLabel]; of != "" {
			source := client.ObjectKey{Namespace: one.Labels[pod.RestoredNamespaceLabel], Name: of}
			sources[source]++
			sizes[source] += sizeOf(one)
		}
	}
	for source, count := range sources {
		send(d.set[restoredDisks], count, source.Name, source.Namespace)
		send(d.set[restoredBytes], sizes[source], source.Name, source.Namespace)
	}
	for i := range all.machines.Items {
		if vm := &all.machines.Items[i]; vm.Spec.Template != nil {
			sendDisks(send, d.set[diskSize], vm, by)
		}
	}
}

// sendDisks sends the sizes of the PVCs of a VM's template.
func sendDisks(send sender, d *prometheus.Desc, vm *kubevirt.VirtualMachine, by map[client.ObjectKey]*corev1.PersistentVolumeClaim) {
	for _, v := range vm.Spec.Template.Spec.Volumes {
		name := ""
		switch {
		case v.PersistentVolumeClaim != nil:
			name = v.PersistentVolumeClaim.ClaimName
		case v.DataVolume != nil:
			name = v.DataVolume.Name
		}
		pvc := by[client.ObjectKey{Namespace: vm.Namespace, Name: name}]
		if pvc == nil {
			continue
		}
		mode := corev1.PersistentVolumeFilesystem
		if pvc.Spec.VolumeMode != nil {
			mode = *pvc.Spec.VolumeMode
		}
		send(d, sizeOf(pvc), vm.Name, vm.Namespace, name, string(mode), v.Name)
	}
}

// sizeOf returns a PVC's size in bytes: what it has, or what it asks for if it has none yet.
func sizeOf(pvc *corev1.PersistentVolumeClaim) float64 {
	return float64(cmp.Or(pvc.Status.Capacity.Storage().Value(), pvc.Spec.Resources.Requests.Storage().Value()))
}
