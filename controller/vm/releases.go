package vm

import (
	"context"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/events"
	kubevirt "kubevirt.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/nodevirt/nodevirt/controller/datavolume"
	"github.com/nodevirt/nodevirt/controller/diskguard"
	"github.com/nodevirt/nodevirt/controller/index"
)

// releases keeps Kubernetes from deleting the disk of one VirtualMachine together with another, which owns it: by a template
// that it had, or by a restore.
type releases struct {
	client      client.Client
	dataVolumes DataVolumes
	events      events.EventRecorder
}

// spare has the PVCs of a deleted VirtualMachine that others use outlive it.
func (r *releases) spare(ctx context.Context, vm *kubevirt.VirtualMachine) error {
	var all corev1.PersistentVolumeClaimList
	if err := r.client.List(ctx, &all, client.InNamespace(vm.Namespace)); err != nil {
		return fmt.Errorf("list PVCs in %s: %w", vm.Namespace, err)
	}
	for i := range all.Items {
		pvc := &all.Items[i]
		owner := metav1.GetControllerOf(pvc)
		if owner == nil || owner.UID != vm.UID && owner.Kind != datavolume.Kind {
			continue
		}
		user, err := r.other(ctx, vm, pvc)
		if err != nil {
			return err
		}
		if user == "" {
			continue
		}
		if err := r.release(ctx, pvc, vm, user); err != nil {
			return err
		}
	}
	return nil
}

// other returns which VirtualMachine or instance uses a PVC beside its owner; "" for none.
func (r *releases) other(ctx context.Context, vm *kubevirt.VirtualMachine, pvc *corev1.PersistentVolumeClaim) (string, error) {
	using := []client.ListOption{client.InNamespace(pvc.Namespace), client.MatchingFields{index.PVC: pvc.Name}}
	var vms kubevirt.VirtualMachineList
	if err := r.client.List(ctx, &vms, using...); err != nil {
		return "", fmt.Errorf("list VMs with PVC %s: %w", pvc.Name, err)
	}
	for i := range vms.Items {
		if one := &vms.Items[i]; one.UID != vm.UID && one.DeletionTimestamp == nil {
			return "VM " + one.Name, nil
		}
	}
	var vmis kubevirt.VirtualMachineInstanceList
	if err := r.client.List(ctx, &vmis, using...); err != nil {
		return "", fmt.Errorf("list VMIs with PVC %s: %w", pvc.Name, err)
	}
	for i := range vmis.Items {
		if one := &vmis.Items[i]; !metav1.IsControlledBy(one, vm) && !one.IsFinal() {
			return "VMI " + one.Name, nil
		}
	}
	return "", nil
}

// take releases the PVCs of a VirtualMachine from others that own them, or their DataVolumes, and do not name them any
// more, or are being deleted.
func (r *releases) take(ctx context.Context, vm *kubevirt.VirtualMachine) error {
	for _, use := range pvcs(vm) {
		pvc := new(corev1.PersistentVolumeClaim)
		err := r.client.Get(ctx, client.ObjectKey{Namespace: vm.Namespace, Name: use.Name}, pvc)
		if apierrors.IsNotFound(err) {
			continue
		}
		if err != nil {
			return fmt.Errorf("read PVC %s/%s: %w", vm.Namespace, use.Name, err)
		}
		owner, err := r.owner(ctx, vm, pvc)
		if err != nil {
			return err
		}
		if owner == nil || owner.Kind != kubevirt.VirtualMachineGroupVersionKind.Kind || owner.UID == vm.UID || owner.Name == vm.Name {
			continue
		}
		former := new(kubevirt.VirtualMachine)
		err = r.client.Get(ctx, client.ObjectKey{Namespace: vm.Namespace, Name: owner.Name}, former)
		if client.IgnoreNotFound(err) != nil {
			return fmt.Errorf("read VM %s/%s: %w", vm.Namespace, owner.Name, err)
		}
		if err != nil || former.UID != owner.UID || former.Status.RestoreInProgress != nil ||
			former.DeletionTimestamp == nil && diskguard.VMNames(former, pvc) {
			continue
		}
		if err := r.release(ctx, pvc, former, "VM "+vm.Name); err != nil {
			return err
		}
	}
	return nil
}

// owner returns who deletes a PVC of a VirtualMachine when it goes: the controller of the PVC, or of its DataVolume; nil for
// none. CDI copies to the PVC the label by which a DataVolume of a template names its VirtualMachine.
func (r *releases) owner(
	ctx context.Context, vm *kubevirt.VirtualMachine, pvc *corev1.PersistentVolumeClaim,
) (*metav1.OwnerReference, error) {
	owner := metav1.GetControllerOf(pvc)
	if owner == nil || owner.Kind != datavolume.Kind {
		return owner, nil
	}
	if by := pvc.Labels[kubevirt.CreatedByLabel]; by == "" || by == string(vm.UID) {
		return nil, nil
	}
	var of *metav1.OwnerReference
	err := r.dataVolumes.ChangeOwners(ctx, pvc.Namespace, owner.Name, func(all []metav1.OwnerReference) []metav1.OwnerReference {
		of = metav1.GetControllerOf(&metav1.ObjectMeta{OwnerReferences: all})
		return all
	})
	return of, err
}

// release has a PVC, and its DataVolume, outlive their owner.
func (r *releases) release(ctx context.Context, pvc *corev1.PersistentVolumeClaim, owner *kubevirt.VirtualMachine, user string) error {
	without := func(all []metav1.OwnerReference) []metav1.OwnerReference {
		return slices.DeleteFunc(slices.Clone(all), func(o metav1.OwnerReference) bool { return o.UID == owner.UID })
	}
	if of := metav1.GetControllerOf(pvc); of != nil && of.Kind == datavolume.Kind {
		return r.dataVolumes.ChangeOwners(ctx, pvc.Namespace, of.Name, without)
	}
	before := pvc.DeepCopy()
	pvc.OwnerReferences = without(pvc.OwnerReferences)
	patch := client.MergeFromWithOptions(before, client.MergeFromWithOptimisticLock{})
	if err := r.client.Patch(ctx, pvc, patch); err != nil {
		return client.IgnoreNotFound(fmt.Errorf("release PVC %s/%s: %w", pvc.Namespace, pvc.Name, err))
	}
	r.events.Eventf(owner, pvc, corev1.EventTypeNormal, "DiskReleased", "Release", "PVC %s stays when this VM is deleted: %s uses it", pvc.Name, user)
	return nil
}
