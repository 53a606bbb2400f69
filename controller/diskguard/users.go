// Package diskguard finds who uses a PVC, and deletes PVCs of users. A deletion names its row in
// [Table], where the conditions are that the caller has checked. The package leaves those
// conditions to the reconcilers, since they know what takes the place of a disk.
package diskguard

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	kubevirt "kubevirt.io/api/core/v1"
	exportapi "kubevirt.io/api/export/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/nodevirt/nodevirt/controller/pod"
)

// Owner is the VM that may use a PVC. Its own instances and templates do not count as other users.
type Owner struct {
	Name string
	UID  types.UID
}

// OtherUser returns which object uses a PVC beside its owner, such as "VM web"; "" for none. Live reads from the API
// server: the caller deletes the PVC next. A pod that has not ended counts, also one of another creator.
func OtherUser(ctx context.Context, live client.Reader, pvc *corev1.PersistentVolumeClaim, owner Owner) (string, error) {
	for _, look := range []func(context.Context, client.Reader, *corev1.PersistentVolumeClaim, Owner) (string, error){
		podUser, vmUser, vmiUser, cloneUser, exportUser,
	} {
		if user, err := look(ctx, live, pvc, owner); user != "" || err != nil {
			return user, err
		}
	}
	return "", nil
}

func podUser(ctx context.Context, live client.Reader, pvc *corev1.PersistentVolumeClaim, _ Owner) (string, error) {
	var all corev1.PodList
	if err := live.List(ctx, &all, client.InNamespace(pvc.Namespace)); err != nil {
		return "", fmt.Errorf("list pods in %s: %w", pvc.Namespace, err)
	}
	for i := range all.Items {
		p := &all.Items[i]
		if p.Status.Phase == corev1.PodSucceeded || p.Status.Phase == corev1.PodFailed {
			continue
		}
		for _, v := range p.Spec.Volumes {
			if c := v.PersistentVolumeClaim; c != nil && c.ClaimName == pvc.Name {
				return "pod " + p.Name, nil
			}
		}
	}
	return "", nil
}

func vmUser(ctx context.Context, live client.Reader, pvc *corev1.PersistentVolumeClaim, owner Owner) (string, error) {
	var all kubevirt.VirtualMachineList
	if err := live.List(ctx, &all, client.InNamespace(pvc.Namespace)); err != nil {
		return "", fmt.Errorf("list VMs in %s: %w", pvc.Namespace, err)
	}
	for i := range all.Items {
		vm := &all.Items[i]
		if vm.UID != owner.UID && VMNames(vm, pvc) {
			return "VM " + vm.Name, nil
		}
	}
	return "", nil
}

// VMNames reports whether a VM has a PVC as a disk, fills it by a template, resumes from it, or keeps its persistent
// state there.
func VMNames(vm *kubevirt.VirtualMachine, pvc *corev1.PersistentVolumeClaim) bool {
	if of := pvc.Labels[pod.StateLabel]; of != "" && of == pod.LabelOf(vm.Name) || vm.Annotations[pod.AnnotationResume] == pvc.Name {
		return true
	}
	for _, t := range vm.Spec.DataVolumeTemplates {
		if t.Name == pvc.Name {
			return true
		}
	}
	return vm.Spec.Template != nil && names(&vm.Spec.Template.Spec, pvc.Name)
}

func names(s *kubevirt.VirtualMachineInstanceSpec, pvc string) bool {
	for _, use := range pod.PVCs(s) {
		if use.Name == pvc {
			return true
		}
	}
	return false
}

// vmiUser counts instances of the owner, too: a PVC whose guest runs is in use.
func vmiUser(ctx context.Context, live client.Reader, pvc *corev1.PersistentVolumeClaim, _ Owner) (string, error) {
	var all kubevirt.VirtualMachineInstanceList
	if err := live.List(ctx, &all, client.InNamespace(pvc.Namespace)); err != nil {
		return "", fmt.Errorf("list VMIs in %s: %w", pvc.Namespace, err)
	}
	for i := range all.Items {
		if vmi := &all.Items[i]; !vmi.IsFinal() && names(&vmi.Spec, pvc.Name) {
			return "VMI " + vmi.Name, nil
		}
	}
	return "", nil
}

// cloneUser returns a PVC that a CSI driver copies the PVC into.
func cloneUser(ctx context.Context, live client.Reader, pvc *corev1.PersistentVolumeClaim, _ Owner) (string, error) {
	var all corev1.PersistentVolumeClaimList
	if err := live.List(ctx, &all, client.InNamespace(pvc.Namespace)); err != nil {
		return "", fmt.Errorf("list PVCs in %s: %w", pvc.Namespace, err)
	}
	for i := range all.Items {
		copied := &all.Items[i]
		if from := copied.Spec.DataSource; from != nil && from.Kind == "PersistentVolumeClaim" && from.Name == pvc.Name &&
			copied.Status.Phase == corev1.ClaimPending {
			return "PVC " + copied.Name + ", which is a copy of it that is not complete,", nil
		}
	}
	return "", nil
}

func exportUser(ctx context.Context, live client.Reader, pvc *corev1.PersistentVolumeClaim, _ Owner) (string, error) {
	var all exportapi.VirtualMachineExportList
	if err := live.List(ctx, &all, client.InNamespace(pvc.Namespace)); err != nil {
		return "", fmt.Errorf("list exports in %s: %w", pvc.Namespace, err)
	}
	for i := range all.Items {
		e := &all.Items[i]
		if e.Spec.Source.Kind == "PersistentVolumeClaim" && e.Spec.Source.Name == pvc.Name && e.DeletionTimestamp == nil {
			return "export " + e.Name, nil
		}
	}
	return "", nil
}
