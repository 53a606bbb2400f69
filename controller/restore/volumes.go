package restore

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	kubevirt "kubevirt.io/api/core/v1"
	api "kubevirt.io/api/snapshot/v1beta1"
	"sigs.k8s.io/controller-runtime/pkg/client"

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

// volumes makes the PVCs of restored VMs.
type volumes struct {
	client      client.Client
	live        client.Reader
	snapshots   snapshots
	dataVolumes dataVolumes
	statuses    progress
}

// plan writes into the status which PVCs and DataVolumes there will be, and which
// DataVolumes will not.
func (v *volumes) plan(ctx context.Context, w *work, content *api.VirtualMachineSnapshotContent) error {
	if w.rs.Status.Restores != nil || len(content.Spec.VolumeBackups) == 0 {
		return nil
	}
	vm := content.Spec.Source.VirtualMachine
	w.rs.Status.DeletedDataVolumes = nil
	for _, b := range content.Spec.VolumeBackups {
		if isDump(vm, b.VolumeName) {
			continue
		}
		if b.VolumeSnapshotName == nil {
			return fmt.Errorf("volume %s has no VolumeSnapshot in the content", b.VolumeName)
		}
		one := api.VolumeRestore{
			VolumeName: b.VolumeName, PersistentVolumeClaimName: v.nameOf(w, b), VolumeSnapshotName: *b.VolumeSnapshotName,
		}
		if dv := dataVolumeOf(vm, b.VolumeName); dv != "" && templateOf(vm.Spec.DataVolumeTemplates, dv) >= 0 {
			name := one.PersistentVolumeClaimName
			one.DataVolumeName = &name
		}
		w.rs.Status.Restores = append(w.rs.Status.Restores, one)
	}
	if w.vm != nil {
		kept := map[string]bool{}
		for _, t := range restoredTemplates(vm, w.rs.Status.Restores) {
			kept[t.Name] = true
		}
		for _, t := range w.vm.Spec.DataVolumeTemplates {
			if !kept[t.Name] {
				w.rs.Status.DeletedDataVolumes = append(w.rs.Status.DeletedDataVolumes, t.Name)
			}
		}
	}
	return v.statuses.report(ctx, w, corev1.ConditionTrue, "Creating new PVCs")
}

// nameOf returns the name of the PVC that a volume is restored to.
func (v *volumes) nameOf(w *work, b api.VolumeBackup) string {
	for _, o := range w.rs.Spec.VolumeRestoreOverrides {
		if o.VolumeName == b.VolumeName && o.RestoreName != "" {
			return o.RestoreName
		}
	}
	switch policyOf(w.rs) {
	case api.VolumeRestorePolicyInPlace:
		return b.PersistentVolumeClaim.Name
	case api.VolumeRestorePolicyPrefixTargetName:
		return w.rs.Spec.Target.Name + "-" + b.VolumeName
	}
	return fmt.Sprintf("restore-%s-%s", w.rs.UID, b.VolumeName)
}

func policyOf(rs *api.VirtualMachineRestore) api.VolumeRestorePolicy {
	if p := rs.Spec.VolumeRestorePolicy; p != nil {
		return *p
	}
	return api.VolumeRestorePolicyRandomizeNames
}

// dataVolumeOf returns the name of the DataVolume that a volume names; "" for another volume.
func dataVolumeOf(vm *api.VirtualMachine, volume string) string {
	for _, v := range vm.Spec.Template.Spec.Volumes {
		if v.Name == volume && v.DataVolume != nil {
			return v.DataVolume.Name
		}
	}
	return ""
}

// isDump reports whether a volume of a VM is for dumps of its memory, which no restored VM has.
func isDump(vm *api.VirtualMachine, volume string) bool {
	return slices.ContainsFunc(vm.Spec.Template.Spec.Volumes, func(v kubevirt.Volume) bool { return v.Name == volume && v.MemoryDump != nil })
}

// templateOf returns the index of the template of a DataVolume; -1 for none.
func templateOf(all []kubevirt.DataVolumeTemplateSpec, name string) int {
	return slices.IndexFunc(all, func(t kubevirt.DataVolumeTemplateSpec) bool { return t.Name == name })
}

// createPVCs creates the PVCs that are missing, and waits for those that Kubernetes binds
// before a pod uses them.
func (v *volumes) createPVCs(ctx context.Context, w *work, content *api.VirtualMachineSnapshotContent) error {
	pending := ""
	for _, one := range w.rs.Status.Restores {
		i := slices.IndexFunc(content.Spec.VolumeBackups, func(b api.VolumeBackup) bool { return b.VolumeName == one.VolumeName })
		if i < 0 {
			return fmt.Errorf("volume %s is not in the snapshot any more", one.VolumeName)
		}
		waits, err := v.createPVC(ctx, w, content, &content.Spec.VolumeBackups[i], one)
		if err != nil {
			return err
		}
		if waits {
			pending = one.PersistentVolumeClaimName
		}
	}
	if pending != "" {
		return waitFor("Waiting for PVC %s", pending)
	}
	return nil
}

// createPVC creates one PVC, or finds it, and reports whether it must be waited for.
func (v *volumes) createPVC(
	ctx context.Context, w *work, content *api.VirtualMachineSnapshotContent, b *api.VolumeBackup, one api.VolumeRestore,
) (waits bool, err error) {
	key := client.ObjectKey{Namespace: w.rs.Namespace, Name: one.PersistentVolumeClaimName}
	pvc := new(corev1.PersistentVolumeClaim)
	err = v.live.Get(ctx, key, pvc) // the cache has no annotations
	switch {
	case apierrors.IsNotFound(err):
		made, err := v.pvc(ctx, w, content, b, one)
		if err != nil {
			return false, err
		}
		if err := v.client.Create(ctx, made); err != nil {
			return false, fmt.Errorf("create PVC %s: %w", key, err)
		}
		return v.binds(ctx, made)
	case err != nil:
		return false, fmt.Errorf("read PVC %s: %w", key, err)
	case pvc.DeletionTimestamp != nil:
		return true, nil
	case pvc.Annotations[annotationLast] != mark(w.rs):
		return true, v.clear(ctx, w, pvc)
	case pvc.Status.Phase == corev1.ClaimLost:
		return false, fmt.Errorf("PVC %s has lost its volume", key)
	case pvc.Status.Phase != corev1.ClaimBound:
		return v.binds(ctx, pvc)
	}
	return false, nil
}

// clear deletes a PVC in whose place the restored one comes.
func (v *volumes) clear(ctx context.Context, w *work, pvc *corev1.PersistentVolumeClaim) error {
	if policyOf(w.rs) != api.VolumeRestorePolicyInPlace {
		return fmt.Errorf("PVC %s exists: delete it, or choose another name", pvc.Name)
	}
	if owner := metav1.GetControllerOf(pvc); isDataVolume(owner) { // CDI would fill it again
		if err := v.dataVolumes.MarkFilled(ctx, pvc.Namespace, owner.Name, map[string]string{annotationName: w.rs.Name}); err != nil {
			return err
		}
	}
	return deletePVC(ctx, v.client, pvc)
}

// discard deletes the PVCs of a restore that is deleted before it has created its VM: nothing else
// knows them. PVCs that took the place of others stay.
func (v *volumes) discard(ctx context.Context, w *work) error {
	if complete, _ := Outcome(w.rs); complete || policyOf(w.rs) == api.VolumeRestorePolicyInPlace {
		return nil
	}
	vm := new(kubevirt.VirtualMachine) // the cache may be behind
	err := v.live.Get(ctx, client.ObjectKey{Namespace: w.rs.Namespace, Name: w.rs.Spec.Target.Name}, vm)
	if err == nil {
		return nil
	}
	if !apierrors.IsNotFound(err) {
		return fmt.Errorf("read VM %s: %w", w.rs.Spec.Target.Name, err)
	}
	for _, one := range w.rs.Status.Restores {
		pvc := new(corev1.PersistentVolumeClaim)
		key := client.ObjectKey{Namespace: w.rs.Namespace, Name: one.PersistentVolumeClaimName}
		err := v.live.Get(ctx, key, pvc)
		switch {
		case apierrors.IsNotFound(err):
			continue
		case err != nil:
			return fmt.Errorf("read PVC %s: %w", key, err)
		case pvc.Annotations[annotationLast] != mark(w.rs) || pvc.DeletionTimestamp != nil:
			continue
		}
		if err := deletePVC(ctx, v.client, pvc); err != nil {
			return err
		}
	}
	return nil
}

// binds reports whether Kubernetes binds a PVC at once.
func (v *volumes) binds(ctx context.Context, pvc *corev1.PersistentVolumeClaim) (bool, error) {
	if pvc.Spec.StorageClassName == nil {
		return true, nil
	}
	class := new(storagev1.StorageClass)
	if err := v.live.Get(ctx, client.ObjectKey{Name: *pvc.Spec.StorageClassName}, class); err != nil {
		return false, fmt.Errorf("read StorageClass %s: %w", *pvc.Spec.StorageClassName, err)
	}
	return class.VolumeBindingMode == nil || *class.VolumeBindingMode == storagev1.VolumeBindingImmediate, nil
}

// pvc returns a PVC with the content of a VolumeSnapshot, at least as large as it needs.
func (v *volumes) pvc(
	ctx context.Context, w *work, content *api.VirtualMachineSnapshotContent, b *api.VolumeBackup, one api.VolumeRestore,
) (*corev1.PersistentVolumeClaim, error) {
	snapshot, err := v.snapshots.Get(ctx, w.rs.Namespace, one.VolumeSnapshotName)
	if err != nil {
		return nil, err
	}
	if snapshot == nil {
		return nil, fmt.Errorf("VolumeSnapshot %s is missing", one.VolumeSnapshotName)
	}
	was := b.PersistentVolumeClaim.DeepCopy()
	made := &corev1.PersistentVolumeClaim{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: w.rs.Namespace, Name: one.PersistentVolumeClaimName, Labels: was.Labels, Annotations: was.Annotations,
		},
		Spec: snapshot.PVCSpec(was.Spec),
	}
	maps.DeleteFunc(made.Annotations, func(key, _ string) bool {
		return key != annotationContent && slices.ContainsFunc(foreign(), func(prefix string) bool { return strings.HasPrefix(key, prefix) })
	})
	for _, o := range w.rs.Spec.VolumeRestoreOverrides {
		if o.VolumeName == b.VolumeName {
			made.Labels, made.Annotations = merged(made.Labels, o.Labels), merged(made.Annotations, o.Annotations)
		}
	}
	source := content.Spec.Source.VirtualMachine
	if pod.IsSavedState(b.VolumeName) {
		metav1.SetMetaDataLabel(&made.ObjectMeta, pod.StateLabel, pod.LabelOf(w.rs.Spec.Target.Name))
	}
	metav1.SetMetaDataLabel(&made.ObjectMeta, pod.RestoredLabel, source.Name)
	metav1.SetMetaDataLabel(&made.ObjectMeta, pod.RestoredNamespaceLabel, source.Namespace)
	metav1.SetMetaDataAnnotation(&made.ObjectMeta, annotationName, w.rs.Name)
	metav1.SetMetaDataAnnotation(&made.ObjectMeta, annotationLast, mark(w.rs))
	if policyOf(w.rs) == api.VolumeRestorePolicyInPlace {
		if owner := metav1.GetControllerOf(was); isDataVolume(owner) { // which takes it
			metav1.SetMetaDataAnnotation(&made.ObjectMeta, datavolume.AnnotationFilledFor, owner.Name)
			return made, nil
		}
	}
	// As with KubeVirt, a new VM owns what the source owned.
	if w.vm != nil || ownedBySource(was, source) {
		metav1.SetMetaDataAnnotation(&made.ObjectMeta, annotationOwned, w.rs.Name)
	}
	return made, nil
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
