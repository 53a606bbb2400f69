package pool

import (
	"context"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	kubevirt "kubevirt.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/nodevirt/nodevirt/controller/datavolume"
)

// AnnotationPreserved names the pool that keeps a PVC whose VM it removed. The pool's
// next VM of that number adopts the PVC.
const AnnotationPreserved = "vm.nodevirt.io/preserved-by-pool"

type owners = []metav1.OwnerReference

// disks keeps the PVCs of removed VMs for their successors.
type disks struct {
	client client.Client
	// live reads from the API server.
	live        client.Reader
	dataVolumes DataVolumes
}

// preserve releases a VM's PVCs, so that they outlive the VM. Made is the spec that the pool's revision makes of the VM. Each
// step can be repeated: the mark is written first, and removed last. A PVC that the VM does not own, since it was there
// before, gets no mark by which the pool would own it.
func (d *disks) preserve(ctx context.Context, pool *vmPool, vm *kubevirt.VirtualMachine, made *kubevirt.VirtualMachineSpec) error {
	for _, claim := range claimsOf(vm) {
		pvc, err := d.pvc(ctx, vm.Namespace, claim)
		if err != nil {
			return err
		}
		if pvc == nil { // there is no state yet
			continue
		}
		added, err := addedTo(pool, vm, made, claim)
		if err != nil {
			return err
		}
		if err := d.preservePVC(ctx, pool, vm, pvc, added); err != nil {
			return err
		}
	}
	return nil
}

// preservePVC is preserve for one PVC. Added is how the VM has it as its own disk; "" for one of a template.
func (d *disks) preservePVC(
	ctx context.Context, pool *vmPool, vm *kubevirt.VirtualMachine, pvc *corev1.PersistentVolumeClaim, added string,
) error {
	isVM := func(o metav1.OwnerReference) bool { return o.UID == vm.UID }
	release := func(all owners) owners { return slices.DeleteFunc(slices.Clone(all), isVM) }
	all, err := d.owners(ctx, pvc)
	if err != nil {
		return err
	}
	owned := pvc.Annotations[AnnotationPreserved] == pool.Name || slices.ContainsFunc(all, isVM)
	if !owned && added == "" {
		return nil
	}
	err = d.changePVC(ctx, "preserve", pvc, func() {
		if owned {
			metav1.SetMetaDataAnnotation(&pvc.ObjectMeta, AnnotationPreserved, pool.Name)
		}
		if added != "" {
			metav1.SetMetaDataAnnotation(&pvc.ObjectMeta, AnnotationAddedDisk, added)
		}
		markVolume(pvc, vm)
		pvc.OwnerReferences = release(pvc.OwnerReferences)
	})
	if name := dataVolumeOf(pvc); err == nil && name != "" && owned {
		err = d.dataVolumes.ChangeOwners(ctx, vm.Namespace, name, release)
	}
	return err
}

// adoptPVCs makes VMs the owners of the PVCs that the pool preserved for them, and removes the marks of those that their
// users own.
func (d *disks) adoptPVCs(ctx context.Context, w *work) error {
	for _, m := range w.active {
		for _, claim := range claimsOf(m.vm) {
			pvc, err := d.pvc(ctx, m.vm.Namespace, claim)
			if err != nil {
				return err
			}
			if pvc == nil {
				continue
			}
			switch _, added := pvc.Annotations[AnnotationAddedDisk]; {
			case pvc.Annotations[AnnotationPreserved] == w.pool.Name:
				err = d.adopt(ctx, m.vm, pvc)
			case added && markedFor(pvc, m.vm) != "":
				err = d.changePVC(ctx, "adopt", pvc, func() { unmark(pvc) })
			}
			if err != nil {
				return err
			}
		}
	}
	return nil
}

func unmark(pvc *corev1.PersistentVolumeClaim) {
	for _, mark := range []string{AnnotationPreserved, AnnotationPreservedVolume, AnnotationAddedDisk} {
		delete(pvc.Annotations, mark)
	}
}

func (d *disks) adopt(ctx context.Context, vm *kubevirt.VirtualMachine, pvc *corev1.PersistentVolumeClaim) error {
	add := func(all owners) owners {
		if slices.ContainsFunc(all, func(o metav1.OwnerReference) bool { return o.UID == vm.UID }) {
			return all
		}
		return append(slices.Clone(all), *metav1.NewControllerRef(vm, kubevirt.VirtualMachineGroupVersionKind))
	}
	name := dataVolumeOf(pvc)
	if name != "" {
		if err := d.dataVolumes.ChangeOwners(ctx, vm.Namespace, name, add); err != nil {
			return err
		}
	}
	return d.changePVC(ctx, "adopt", pvc, func() {
		unmark(pvc)
		if name == "" && metav1.GetControllerOf(pvc) == nil {
			pvc.OwnerReferences = add(pvc.OwnerReferences)
		}
	})
}

// owners returns the owners of a PVC or, if it has one, of its DataVolume.
func (d *disks) owners(ctx context.Context, pvc *corev1.PersistentVolumeClaim) (owners, error) {
	name := dataVolumeOf(pvc)
	if name == "" {
		return pvc.OwnerReferences, nil
	}
	var all owners
	err := d.dataVolumes.ChangeOwners(ctx, pvc.Namespace, name, func(have owners) owners {
		all = have
		return have
	})
	return all, err
}

// left reports whether a PVC for the VM of a number still belongs to a former VM of
// its name. The garbage collector is about to delete it: a new VM must not use it.
func (d *disks) left(ctx context.Context, pool *vmPool, index int) (bool, error) {
	for _, t := range specOf(pool, index).DataVolumeTemplates {
		pvc, err := d.pvc(ctx, pool.Namespace, t.Name)
		if err != nil {
			return false, err
		}
		if pvc == nil {
			continue
		}
		all, err := d.owners(ctx, pvc)
		if err != nil {
			return false, err
		}
		former := func(o metav1.OwnerReference) bool {
			return o.Kind == kubevirt.VirtualMachineGroupVersionKind.Kind && o.Name == nameOf(pool, index)
		}
		if pvc.DeletionTimestamp != nil || slices.ContainsFunc(all, former) {
			return true, nil
		}
	}
	return false, nil
}

// dataVolumeOf returns the name of the DataVolume that owns a PVC; "" for none.
func dataVolumeOf(pvc *corev1.PersistentVolumeClaim) string {
	if owner := metav1.GetControllerOf(pvc); owner != nil && owner.Kind == datavolume.Kind {
		return owner.Name
	}
	return ""
}

// pvc reads a PVC; nil if there is none.
func (d *disks) pvc(ctx context.Context, namespace, name string) (*corev1.PersistentVolumeClaim, error) {
	pvc := new(corev1.PersistentVolumeClaim)
	err := d.client.Get(ctx, client.ObjectKey{Namespace: namespace, Name: name}, pvc)
	if apierrors.IsNotFound(err) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("read PVC %s/%s: %w", namespace, name, err)
	}
	return pvc, nil
}

func (d *disks) changePVC(ctx context.Context, verb string, pvc *corev1.PersistentVolumeClaim, change func()) error {
	before := pvc.DeepCopy()
	change()
	patch := client.MergeFromWithOptions(before, client.MergeFromWithOptimisticLock{})
	if err := d.client.Patch(ctx, pvc, patch); err != nil {
		return client.IgnoreNotFound(fmt.Errorf("%s PVC %s: %w", verb, pvc.Name, err))
	}
	return nil
}
