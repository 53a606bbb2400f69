// Package diskguard finds who uses a PVC, and deletes PVCs of users. A deletion names its row in
// [Table], where the conditions are that the caller has checked. The package leaves those
// conditions to the reconcilers, since they know what takes the place of a disk.
package diskguard

import (
	"context"
	"fmt"
	"slices"

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
// server: the caller deletes the PVC next. A pod that has not ended counts, also one of another creator, and so do the
// owner's instances: a PVC whose guest runs is in use.
func OtherUser(ctx context.Context, live client.Reader, pvc *corev1.PersistentVolumeClaim, owner Owner) (string, error) {
	for _, look := range []func() (string, error){
		func() (string, error) {
			all := new(corev1.PodList)
			return user(ctx, live, pvc, all, func() []corev1.Pod { return all.Items }, podUses)
		},
		func() (string, error) {
			all := new(kubevirt.VirtualMachineList)
			return user(ctx, live, pvc, all, func() []kubevirt.VirtualMachine { return all.Items },
				func(vm *kubevirt.VirtualMachine, pvc *corev1.PersistentVolumeClaim) string {
					return said(vm.UID != owner.UID && VMNames(vm, pvc), "VM %s", vm.Name)
				})
		},
		func() (string, error) {
			all := new(kubevirt.VirtualMachineInstanceList)
			return user(ctx, live, pvc, all, func() []kubevirt.VirtualMachineInstance { return all.Items }, instanceUses)
		},
		func() (string, error) {
			all := new(corev1.PersistentVolumeClaimList)
			return user(ctx, live, pvc, all, func() []corev1.PersistentVolumeClaim { return all.Items }, copyUses)
		},
		func() (string, error) {
			all := new(exportapi.VirtualMachineExportList)
			return user(ctx, live, pvc, all, func() []exportapi.VirtualMachineExport { return all.Items }, exportUses)
		},
	} {
		if who, err := look(); who != "" || err != nil {
			return who, err
		}
	}
	return "", nil
}

// user returns which object of a kind uses a PVC, as uses says of one of them; "" for none.
func user[T any](
	ctx context.Context, live client.Reader, pvc *corev1.PersistentVolumeClaim,
	list client.ObjectList, items func() []T, uses func(*T, *corev1.PersistentVolumeClaim) string,
) (string, error) {
	if err := live.List(ctx, list, client.InNamespace(pvc.Namespace)); err != nil {
		return "", fmt.Errorf("list the %T of %s: %w", *new(T), pvc.Namespace, err)
	}
	all := items()
	for i := range all {
		if who := uses(&all[i], pvc); who != "" {
			return who, nil
		}
	}
	return "", nil
}

// said returns who uses a PVC, if one does.
func said(uses bool, format, name string) string {
	if !uses {
		return ""
	}
	return fmt.Sprintf(format, name)
}

func podUses(p *corev1.Pod, pvc *corev1.PersistentVolumeClaim) string {
	ended := p.Status.Phase == corev1.PodSucceeded || p.Status.Phase == corev1.PodFailed
	return said(!ended && slices.ContainsFunc(p.Spec.Volumes, func(v corev1.Volume) bool {
		return v.PersistentVolumeClaim != nil && v.PersistentVolumeClaim.ClaimName == pvc.Name
	}), "pod %s", p.Name)
}

func instanceUses(vmi *kubevirt.VirtualMachineInstance, pvc *corev1.PersistentVolumeClaim) string {
	return said(!vmi.IsFinal() && names(&vmi.Spec, pvc.Name), "VMI %s", vmi.Name)
}

// copyUses finds a PVC that a CSI driver copies the PVC into.
func copyUses(copied *corev1.PersistentVolumeClaim, pvc *corev1.PersistentVolumeClaim) string {
	from := copied.Spec.DataSource
	return said(from != nil && from.Kind == "PersistentVolumeClaim" && from.Name == pvc.Name && copied.Status.Phase == corev1.ClaimPending,
		"PVC %s, which is a copy of it that is not complete,", copied.Name)
}

func exportUses(e *exportapi.VirtualMachineExport, pvc *corev1.PersistentVolumeClaim) string {
	from := e.Spec.Source
	return said(from.Kind == "PersistentVolumeClaim" && from.Name == pvc.Name && e.DeletionTimestamp == nil, "export %s", e.Name)
}

// VMNames reports whether a VM has a PVC as a disk, fills it by a template, resumes from it, or keeps its persistent
// state there.
func VMNames(vm *kubevirt.VirtualMachine, pvc *corev1.PersistentVolumeClaim) bool {
	if of := pvc.Labels[pod.StateLabel]; of != "" && of == pod.LabelOf(vm.Name) || vm.Annotations[pod.AnnotationResume] == pvc.Name {
		return true
	}
	if slices.ContainsFunc(vm.Spec.DataVolumeTemplates, func(t kubevirt.DataVolumeTemplateSpec) bool { return t.Name == pvc.Name }) {
		return true
	}
	return vm.Spec.Template != nil && names(&vm.Spec.Template.Spec, pvc.Name)
}

func names(s *kubevirt.VirtualMachineInstanceSpec, pvc string) bool {
	return slices.ContainsFunc(pod.PVCs(s), func(use pod.PVC) bool { return use.Name == pvc })
}
