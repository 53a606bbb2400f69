// Package diskguard finds who uses a PVC, and deletes PVCs of users. A deletion names its row in
// [Table], where the conditions are that the caller has checked. The package leaves those
// conditions to the reconcilers, since they know what takes the place of a disk.
package diskguard

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	kubevirt "kubevirt.io/api/core/v1"
	exportapi "kubevirt.io/api/export/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/nodevirt/nodevirt/controller/pages"
	"github.com/nodevirt/nodevirt/controller/pod"
)

// Owner is the VM that may use a PVC. Its own templates do not count as other users. One without a UID does not exist yet: then
// attachment pods of its name, which are a former VM's and go, do not count either.
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
			items := func(all *corev1.PodList) []corev1.Pod { return all.Items }
			return user(ctx, live, pvc, new(corev1.PodList), items, owner.podUses, pages.Unfinished())
		},
		func() (string, error) {
			items := func(all *kubevirt.VirtualMachineList) []kubevirt.VirtualMachine { return all.Items }
			return user(ctx, live, pvc, new(kubevirt.VirtualMachineList), items, func(vm *kubevirt.VirtualMachine, pvc *corev1.PersistentVolumeClaim) string {
				return said(vm.UID != owner.UID && VMNames(vm, pvc), "VM %s", vm.Name)
			})
		},
		func() (string, error) {
			items := func(all *kubevirt.VirtualMachineInstanceList) []kubevirt.VirtualMachineInstance { return all.Items }
			return user(ctx, live, pvc, new(kubevirt.VirtualMachineInstanceList), items, instanceUses)
		},
		func() (string, error) {
			items := func(all *corev1.PersistentVolumeClaimList) []corev1.PersistentVolumeClaim { return all.Items }
			return user(ctx, live, pvc, new(corev1.PersistentVolumeClaimList), items, copyUses)
		},
		func() (string, error) {
			items := func(all *exportapi.VirtualMachineExportList) []exportapi.VirtualMachineExport { return all.Items }
			return user(ctx, live, pvc, new(exportapi.VirtualMachineExportList), items, exportUses)
		},
	} {
		if who, err := look(); who != "" || err != nil {
			return who, err
		}
	}
	return "", nil
}

// user returns which object of a kind uses a PVC, as uses says of one of them; "" for none. Of too many objects one may use the
// PVC, so user returns that.
func user[T any, L client.ObjectList](
	ctx context.Context, live client.Reader, pvc *corev1.PersistentVolumeClaim,
	empty L, items func(L) []T, uses func(*T, *corev1.PersistentVolumeClaim) string, options ...client.ListOption,
) (who string, err error) {
	kind := reflect.TypeFor[T]().Name()
	err = pages.Each(ctx, live, pvc.Namespace, func() L { return empty.DeepCopyObject().(L) }, func(page L) (bool, error) {
		all := items(page)
		for i := range all {
			if who = uses(&all[i], pvc); who != "" {
				return true, nil
			}
		}
		return false, nil
	}, options...)
	if errors.Is(err, pages.ErrTooMany) {
		return fmt.Sprintf("perhaps an object of kind %s (%v)", kind, err), nil
	}
	if err != nil {
		return "", fmt.Errorf("list the objects of kind %s in %s: %w", kind, pvc.Namespace, err)
	}
	return who, nil
}

// said returns who uses a PVC, if one does.
func said(uses bool, format, name string) string {
	if !uses {
		return ""
	}
	return fmt.Sprintf(format, name)
}

func (o Owner) podUses(p *corev1.Pod, pvc *corev1.PersistentVolumeClaim) string {
	if instance, _, attached := pod.AttachedTo(p); attached && o.UID == "" && instance == o.Name {
		return ""
	}
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
