package restore

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	api "kubevirt.io/api/snapshot/v1beta1"

	"github.com/nodevirt/nodevirt/controller/datavolume"
	"github.com/nodevirt/nodevirt/controller/pod"
)

// foreign begin the annotations of a PVC that are not its author's.
func foreign() []string {
	return []string{
		"pv.kubernetes.io", "volume.beta.kubernetes.io", "cdi.kubevirt.io", "volume.kubernetes.io",
		"k8s.io/CloneRequest", "k8s.io/CloneOf", annotationLast, annotationName,
	}
}

// temporary returns the PVC that has a restored disk while another PVC has its name. Nothing but the restore finds it by
// its labels and annotations.
func temporary(w *work, volume string, of *corev1.PersistentVolumeClaim) *corev1.PersistentVolumeClaim {
	return &corev1.PersistentVolumeClaim{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: of.Namespace, Name: temporaryName(w, volume),
			Annotations: map[string]string{annotationName: w.rs.Name, annotationLast: mark(w.rs)},
		},
		Spec: of.Spec,
	}
}

// restoredPVC returns a PVC with the content of a VolumeSnapshot, at least as large as it needs.
func (v *volumes) restoredPVC(
	ctx context.Context, w *work, content *api.VirtualMachineSnapshotContent, b *api.VolumeBackup, one api.VolumeRestore,
) (*corev1.PersistentVolumeClaim, error) {
	snapshot, err := v.snapshots.Get(ctx, w.rs.Namespace, one.VolumeSnapshotName)
	switch {
	case err != nil:
		return nil, err
	case snapshot == nil:
		return nil, fmt.Errorf("VolumeSnapshot %s is missing", one.VolumeSnapshotName)
	case snapshot.Deleted:
		return nil, fmt.Errorf("VolumeSnapshot %s is being deleted", one.VolumeSnapshotName)
	}
	made := v.plainPVC(w, content, b, one)
	made.Spec = snapshot.PVCSpec(b.PersistentVolumeClaim.Spec)
	return made, nil
}

// plainPVC returns a restored PVC without the source of its content. Content is nil if the snapshot is gone.
func (v *volumes) plainPVC(
	w *work, content *api.VirtualMachineSnapshotContent, b *api.VolumeBackup, one api.VolumeRestore,
) *corev1.PersistentVolumeClaim {
	was := b.PersistentVolumeClaim.DeepCopy()
	made := &corev1.PersistentVolumeClaim{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: w.rs.Namespace, Name: one.PersistentVolumeClaimName, Labels: was.Labels, Annotations: was.Annotations,
		},
		Spec: corev1.PersistentVolumeClaimSpec{AccessModes: was.Spec.AccessModes},
	}
	maps.DeleteFunc(made.Annotations, func(key, _ string) bool {
		return key != annotationContent && key != pod.AnnotationPreallocation && slices.ContainsFunc(foreign(), func(prefix string) bool { return strings.HasPrefix(key, prefix) })
	})
	for _, o := range w.rs.Spec.VolumeRestoreOverrides {
		if o.VolumeName == b.VolumeName {
			made.Labels, made.Annotations = merged(made.Labels, o.Labels), merged(made.Annotations, o.Annotations)
		}
	}
	if pod.IsSavedState(b.VolumeName) {
		metav1.SetMetaDataLabel(&made.ObjectMeta, pod.StateLabel, pod.LabelOf(w.rs.Spec.Target.Name))
	}
	metav1.SetMetaDataAnnotation(&made.ObjectMeta, annotationName, w.rs.Name)
	metav1.SetMetaDataAnnotation(&made.ObjectMeta, annotationLast, mark(w.rs))
	if content == nil {
		return made
	}
	source := content.Spec.Source.VirtualMachine
	metav1.SetMetaDataLabel(&made.ObjectMeta, pod.RestoredLabel, pod.LabelOf(source.Name))
	metav1.SetMetaDataLabel(&made.ObjectMeta, pod.RestoredNamespaceLabel, source.Namespace)
	if policyOf(w.rs) == api.VolumeRestorePolicyInPlace {
		if owner := metav1.GetControllerOf(was); isDataVolume(owner) { // which takes it
			metav1.SetMetaDataAnnotation(&made.ObjectMeta, datavolume.AnnotationFilledFor, owner.Name)
			return made
		}
	}
	// As with KubeVirt, a new VM owns what the source owned.
	if w.vm != nil || ownedBySource(was, source) {
		metav1.SetMetaDataAnnotation(&made.ObjectMeta, annotationOwned, w.rs.Name)
	}
	return made
}

func isDataVolume(owner *metav1.OwnerReference) bool {
	return owner != nil && owner.Kind == datavolume.Kind
}

func ownedBySource(pvc *api.PersistentVolumeClaim, source *api.VirtualMachine) bool {
	return slices.ContainsFunc(pvc.OwnerReferences, func(o metav1.OwnerReference) bool { return o.UID == source.UID })
}

func merged(into, more map[string]string) map[string]string {
	if into == nil {
		into = map[string]string{}
	}
	maps.Copy(into, more)
	return into
}
