package pool

import (
	"context"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	kubevirt "kubevirt.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/nodevirt/nodevirt/controller/pod"
)

// AnnotationPreservedVolume is of a PVC that a pool keeps: the VM and the volume that it is for, as VM/VOLUME. A restored
// VM's disk has another name than the pool's template gives it.
const AnnotationPreservedVolume = "vm.nodevirt.io/preserved-volume"

// keepDisks gives the next spec of a VM the disks that are its own: that a restore has brought, or a user has added. Made is
// the spec that the pool's former revision makes; nil if it is unknown, and then each disk is the VM's own.
func keepDisks(have, next, made *kubevirt.VirtualMachineSpec) {
	if have.Template == nil || next.Template == nil {
		return
	}
	for i := range have.Template.Spec.Volumes {
		own := &have.Template.Spec.Volumes[i]
		claim := pod.ClaimOf(own)
		was := madeClaim(made, own.Name)
		if claim == "" || claim == was {
			continue
		}
		n := pod.VolumeOf(&next.Template.Spec, own.Name)
		if n == nil {
			if made != nil && pod.VolumeOf(&made.Template.Spec, own.Name) != nil {
				continue // the pool's volume, which its template does not have any more
			}
			next.Template.Spec.Volumes = append(next.Template.Spec.Volumes, *own.DeepCopy())
			if d := pod.DiskOf(&have.Template.Spec, own.Name); d != nil && pod.DiskOf(&next.Template.Spec, own.Name) == nil {
				next.Template.Spec.Domain.Devices.Disks = append(next.Template.Spec.Domain.Devices.Disks, *d.DeepCopy())
			}
		} else {
			replaced := pod.ClaimOf(n)
			n.VolumeSource = *own.VolumeSource.DeepCopy()
			for _, unused := range []string{replaced, was} {
				dropTemplate(next, unused)
			}
		}
		if at := templateOf(have, claim); at >= 0 && templateOf(next, claim) < 0 {
			next.DataVolumeTemplates = append(next.DataVolumeTemplates, *have.DataVolumeTemplates[at].DeepCopy())
		}
	}
}

// madeClaim returns the PVC of a volume in a spec; "" for none.
func madeClaim(made *kubevirt.VirtualMachineSpec, volume string) string {
	if made == nil || made.Template == nil {
		return ""
	}
	return pod.ClaimOf(pod.VolumeOf(&made.Template.Spec, volume))
}

// templateOf returns the index of a DataVolume's template; -1 for none.
func templateOf(s *kubevirt.VirtualMachineSpec, name string) int {
	return slices.IndexFunc(s.DataVolumeTemplates, func(t kubevirt.DataVolumeTemplateSpec) bool { return t.Name == name })
}

// dropTemplate removes the template of a DataVolume that no volume names.
func dropTemplate(s *kubevirt.VirtualMachineSpec, name string) {
	named := slices.ContainsFunc(s.Template.Spec.Volumes, func(v kubevirt.Volume) bool { return pod.ClaimOf(&v) == name })
	if at := templateOf(s, name); at >= 0 && !named {
		s.DataVolumeTemplates = slices.Delete(s.DataVolumeTemplates, at, at+1)
	}
}

// volumeOf returns the volume of a VM that names a PVC; "" for none.
func volumeOf(vm *kubevirt.VirtualMachine, claim string) string {
	if vm.Spec.Template == nil {
		return ""
	}
	for i := range vm.Spec.Template.Spec.Volumes {
		if v := &vm.Spec.Template.Spec.Volumes[i]; pod.ClaimOf(v) == claim {
			return v.Name
		}
	}
	return ""
}

// reuse has a new VM of a pool use the PVCs that the pool has kept for its volumes, also if they have other names.
func (d *disks) reuse(ctx context.Context, pool *vmPool, vm *kubevirt.VirtualMachine) error {
	if vm.Spec.Template == nil {
		return nil
	}
	var all corev1.PersistentVolumeClaimList
	if err := d.client.List(ctx, &all, client.InNamespace(pool.Namespace)); err != nil {
		return fmt.Errorf("list PVCs in %s: %w", pool.Namespace, err)
	}
	for i := range all.Items {
		pvc := &all.Items[i]
		volume := markedFor(pvc, vm)
		if volume == "" || pvc.DeletionTimestamp != nil {
			continue
		}
		if _, added := pvc.Annotations[AnnotationAddedDisk]; added {
			if err := d.giveBack(ctx, pool, vm, pvc, volume); err != nil {
				return err
			}
			continue
		}
		v := pod.VolumeOf(&vm.Spec.Template.Spec, volume)
		if pvc.Annotations[AnnotationPreserved] != pool.Name || v == nil || pod.ClaimOf(v) == pvc.Name {
			continue
		}
		at := templateOf(&vm.Spec, pod.ClaimOf(v))
		if at < 0 {
			continue
		}
		vm.Spec.DataVolumeTemplates[at].Name = pvc.Name
		v.VolumeSource = kubevirt.VolumeSource{DataVolume: &kubevirt.DataVolumeSource{Name: pvc.Name}}
	}
	return nil
}

// markedFor returns the volume of a VM that a PVC is kept for; "" for none.
func markedFor(pvc *corev1.PersistentVolumeClaim, vm *kubevirt.VirtualMachine) string {
	volume, is := strings.CutPrefix(pvc.Annotations[AnnotationPreservedVolume], vm.Name+"/")
	if !is {
		return ""
	}
	return volume
}

// markVolume notes on a PVC that is kept for which volume it is.
func markVolume(pvc *corev1.PersistentVolumeClaim, vm *kubevirt.VirtualMachine) {
	if volume := volumeOf(vm, pvc.Name); volume != "" {
		metav1.SetMetaDataAnnotation(&pvc.ObjectMeta, AnnotationPreservedVolume, vm.Name+"/"+volume)
	}
}
