package export

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	kubevirt "kubevirt.io/api/core/v1"
	api "kubevirt.io/api/export/v1"
	snapshotapi "kubevirt.io/api/snapshot/v1beta1"

	"github.com/nodevirt/nodevirt/controller/pod"
)

// ofSnapshot exports copies of the PVCs in a snapshot, which are there as long as the export.
func (f *sources) ofSnapshot(ctx context.Context, w *work) (*source, error) {
	snapshot, key := new(snapshotapi.VirtualMachineSnapshot), w.key(w.e.Spec.Source.Name)
	err := f.client.Get(ctx, key, snapshot)
	if apierrors.IsNotFound(err) {
		return uncreated(&source{empty: true, why: because(reasonNoSnapshot, "VirtualMachineSnapshot %s not found", key)}), nil
	}
	if err != nil {
		return nil, fmt.Errorf("read snapshot %s: %w", key, err)
	}
	s := &source{vm: snapshot.Spec.Source.Name}
	st := snapshot.Status
	if st == nil || st.ReadyToUse == nil || !*st.ReadyToUse || st.VirtualMachineSnapshotContentName == nil {
		s.why = because(reasonNotCreated, "VirtualMachineSnapshot %s is not ready to use", key)
		return uncreated(s), nil
	}
	content := new(snapshotapi.VirtualMachineSnapshotContent)
	if err := f.client.Get(ctx, w.key(*st.VirtualMachineSnapshotContentName), content); err != nil {
		return nil, fmt.Errorf("read snapshot content %s: %w", *st.VirtualMachineSnapshotContentName, err)
	}
	if len(content.Spec.VolumeBackups) == 0 {
		s.empty, s.why = true, because(reasonEmptySnapshot, "VirtualMachineSnapshot %s does not contain any volume snapshots", key)
		return uncreated(s), nil
	}
	uses := map[string]pod.PVC{}
	if vm := content.Spec.Source.VirtualMachine; vm != nil {
		s.spec = &kubevirt.VirtualMachine{ObjectMeta: vm.ObjectMeta, Spec: vm.Spec}
		for _, use := range disksOf(vm.Spec.Template) {
			uses[use.Volume] = use
		}
	}
	created := api.Condition{Type: api.ConditionVolumesCreated, Status: corev1.ConditionTrue, Reason: reasonAllPVCs}
	for i := range content.Spec.VolumeBackups {
		b := &content.Spec.VolumeBackups[i]
		pvc, err := f.copied(ctx, w, b)
		if err != nil {
			return nil, err
		}
		if pvc.Status.Phase != corev1.ClaimBound { // some are bound once the pod uses them
			created = api.Condition{
				Type: api.ConditionVolumesCreated, Status: corev1.ConditionFalse, Reason: reasonNotAllPVCs, Message: "Not all PVCs are ready",
			}
		}
		use := pod.PVC{Volume: b.VolumeName, Filesystem: uses[b.VolumeName].Filesystem}
		s.volumes = append(s.volumes, volume{pvc: pvc, source: b.PersistentVolumeClaim.Name, has: contentOf(pvc, use)})
	}
	s.conditions = []api.Condition{created}
	return s, nil
}

// uncreated adds the condition of a snapshot whose PVCs have no copies.
func uncreated(s *source) *source {
	s.conditions = []api.Condition{{
		Type: api.ConditionVolumesCreated, Status: corev1.ConditionFalse, Reason: s.why.reason, Message: s.why.message,
	}}
	return s
}

// copied returns the copy of a PVC in a snapshot, and creates it if it does not exist.
func (f *sources) copied(ctx context.Context, w *work, b *snapshotapi.VolumeBackup) (*corev1.PersistentVolumeClaim, error) {
	name := fit(w.e.Name+"-"+b.PersistentVolumeClaim.Name, maxName)
	pvc := new(corev1.PersistentVolumeClaim)
	err := f.live.Get(ctx, w.key(name), pvc)
	switch {
	case err == nil && !metav1.IsControlledBy(pvc, w.e):
		return nil, fmt.Errorf("PVC %s exists and is not the export's: delete it, or choose another name for the export", name)
	case err == nil && pvc.DeletionTimestamp != nil:
		return nil, fmt.Errorf("PVC %s is being deleted", name)
	case err == nil:
		return pvc, nil
	case !apierrors.IsNotFound(err):
		return nil, fmt.Errorf("read PVC %s: %w", name, err)
	case b.VolumeSnapshotName == nil:
		return nil, fmt.Errorf("volume %s has no VolumeSnapshot in the content", b.VolumeName)
	}
	of, err := f.snapshots.Get(ctx, w.e.Namespace, *b.VolumeSnapshotName)
	if err != nil {
		return nil, err
	}
	if of == nil {
		return nil, fmt.Errorf("VolumeSnapshot %s is missing", *b.VolumeSnapshotName)
	}
	pvc = &corev1.PersistentVolumeClaim{ObjectMeta: w.meta(name), Spec: of.PVCSpec(b.PersistentVolumeClaim.Spec)}
	if err := f.client.Create(ctx, pvc); err != nil {
		return nil, fmt.Errorf("create PVC %s: %w", name, err)
	}
	return pvc, nil
}
