package restore

import (
	"context"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/util/validation"
	kubevirt "kubevirt.io/api/core/v1"
	api "kubevirt.io/api/snapshot/v1beta1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/nodevirt/nodevirt/controller/diskguard"
	"github.com/nodevirt/nodevirt/controller/pod"
)

// volumes makes the PVCs of restored VMs.
type volumes struct {
	client    client.Client
	live      client.Reader
	snapshots snapshots
	statuses  progress
	binder    binder
	replacer  *replacer
	// contentOf returns the content of a restore's snapshot.
	contentOf func(ctx context.Context, w *work) (*api.VirtualMachineSnapshotContent, error)
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
		if slices.ContainsFunc(w.rs.Status.Restores, func(other api.VolumeRestore) bool {
			return other.PersistentVolumeClaimName == one.PersistentVolumeClaimName
		}) {
			w.rs.Status.Restores = nil
			return fmt.Errorf("volume %s: another volume is restored to PVC %s; choose another restoreName", one.VolumeName, one.PersistentVolumeClaimName)
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
		name := w.rs.Spec.Target.Name + "-" + b.VolumeName
		if len(name) > validation.DNS1123SubdomainMaxLength {
			name = pod.UniqueName(name, validation.DNS1123SubdomainMaxLength, name)
		}
		return name
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

// createPVCs creates the PVCs that are missing, and waits until all of them are bound. Then it puts them into the place
// of those that they replace.
func (v *volumes) createPVCs(ctx context.Context, w *work, content *api.VirtualMachineSnapshotContent) error {
	var all, unbound []*corev1.PersistentVolumeClaim
	for _, one := range w.rs.Status.Restores {
		b, err := backupOf(content, one.VolumeName)
		if err != nil {
			return err
		}
		pvc, err := v.ensure(ctx, w, content, b, one)
		switch {
		case err != nil:
			return err
		case pvc == nil:
			continue
		case pvc.Status.Phase == corev1.ClaimBound:
		case pvc.Status.Phase == corev1.ClaimLost:
			return fmt.Errorf("PVC %s/%s has lost its volume", pvc.Namespace, pvc.Name)
		default:
			unbound = append(unbound, pvc)
		}
		all = append(all, pvc)
	}
	if err := v.bind(ctx, w, content, all, unbound); err != nil {
		return err
	}
	for _, one := range w.rs.Status.Restores {
		b, err := backupOf(content, one.VolumeName)
		if err != nil {
			return err
		}
		if err := v.replace(ctx, w, content, b, one); err != nil {
			return err
		}
	}
	return nil
}

func backupOf(content *api.VirtualMachineSnapshotContent, volume string) (*api.VolumeBackup, error) {
	i := slices.IndexFunc(content.Spec.VolumeBackups, func(b api.VolumeBackup) bool { return b.VolumeName == volume })
	if i < 0 {
		return nil, fmt.Errorf("volume %s is not in the snapshot any more", volume)
	}
	return &content.Spec.VolumeBackups[i], nil
}

// ensure creates the PVC with a restored disk, or finds it: that of the wanted name or, if another PVC has the name, a
// temporary one. It returns nil while the disk goes from one to the other.
func (v *volumes) ensure(
	ctx context.Context, w *work, content *api.VirtualMachineSnapshotContent, b *api.VolumeBackup, one api.VolumeRestore,
) (*corev1.PersistentVolumeClaim, error) {
	replaced, err := replacements(w.rs)
	if err != nil {
		return nil, err
	}
	if _, recorded := replaced[one.PersistentVolumeClaimName]; recorded {
		return nil, nil
	}
	pvc, err := v.replacer.read(ctx, w, one.PersistentVolumeClaimName)
	switch {
	case err != nil:
		return nil, err
	case pvc != nil && pvc.DeletionTimestamp != nil:
		return nil, soon("Waiting for the end of PVC %s", pvc.Name)
	case pvc != nil && pvc.Annotations[annotationLast] == mark(w.rs):
		return pvc, nil
	case pvc != nil:
		if err := v.replacer.checkReplaceable(ctx, w, content.Spec.Source.VirtualMachine, b, pvc); err != nil {
			return nil, err
		}
	}
	if policyOf(w.rs) == api.VolumeRestorePolicyInPlace {
		temporary, err := v.replacer.read(ctx, w, temporaryName(w, b.VolumeName))
		switch {
		case err != nil:
			return nil, err
		case temporary != nil && (temporary.Annotations[annotationLast] != mark(w.rs) || temporary.DeletionTimestamp != nil):
			return nil, fmt.Errorf("PVC %s exists: delete it", temporary.Name)
		case temporary != nil:
			return temporary, nil
		}
	}
	made, err := v.restoredPVC(ctx, w, content, b, one)
	if err != nil {
		return nil, err
	}
	if pvc != nil {
		made = temporary(w, b.VolumeName, made)
	}
	if err := v.client.Create(ctx, made); err != nil {
		return nil, fmt.Errorf("create PVC %s/%s: %w", made.Namespace, made.Name, err)
	}
	return made, nil
}

// replace puts a restored disk into the place of the PVC of the wanted name.
func (v *volumes) replace(
	ctx context.Context, w *work, content *api.VirtualMachineSnapshotContent, b *api.VolumeBackup, one api.VolumeRestore,
) error {
	name := one.PersistentVolumeClaimName
	all, err := replacements(w.rs)
	if err != nil {
		return err
	}
	if _, recorded := all[name]; !recorded {
		current, err := v.replacer.read(ctx, w, name)
		if err != nil || current != nil && current.Annotations[annotationLast] == mark(w.rs) {
			return err
		}
		temporary, err := v.replacer.read(ctx, w, temporaryName(w, b.VolumeName))
		switch {
		case err != nil:
			return err
		case temporary == nil:
			return soon("Waiting for PVC %s", name)
		}
		if err := v.replacer.begin(ctx, w, name, temporary, current); err != nil {
			return err
		}
	}
	return v.replacer.proceed(ctx, w, b.VolumeName, name, func() *corev1.PersistentVolumeClaim { return v.plainPVC(w, content, b, one) })
}

// discard deletes the PVCs of a restore that is deleted before it has created its VM: nothing else
// knows them. PVCs with the names of the snapshot's stay; temporary ones never do.
func (v *volumes) discard(ctx context.Context, w *work) error {
	if complete, _ := Outcome(w.rs); complete {
		return nil
	}
	if err := v.settle(ctx, w); err != nil {
		return err
	}
	inPlace := policyOf(w.rs) == api.VolumeRestorePolicyInPlace
	if !inPlace {
		vm := new(kubevirt.VirtualMachine) // the cache may be behind
		err := v.live.Get(ctx, client.ObjectKey{Namespace: w.rs.Namespace, Name: w.rs.Spec.Target.Name}, vm)
		if err == nil {
			return nil
		}
		if !apierrors.IsNotFound(err) {
			return fmt.Errorf("read VM %s: %w", w.rs.Spec.Target.Name, err)
		}
	}
	for _, one := range w.rs.Status.Restores {
		name := one.PersistentVolumeClaimName
		if inPlace {
			name = temporaryName(w, one.VolumeName)
		}
		pvc, err := v.replacer.read(ctx, w, name)
		switch {
		case err != nil:
			return err
		case pvc == nil || pvc.Annotations[annotationLast] != mark(w.rs):
			continue
		}
		if err := diskguard.Delete(ctx, v.client, diskguard.RestoreDiscarded, pvc); err != nil {
			return err
		}
	}
	return nil
}

// settle ends the replacements that a deleted restore has begun.
func (v *volumes) settle(ctx context.Context, w *work) error {
	return v.replacer.settle(ctx, w, func(volume, name string) *corev1.PersistentVolumeClaim {
		one := api.VolumeRestore{VolumeName: volume, PersistentVolumeClaimName: name}
		content, err := v.contentOf(ctx, w)
		if err != nil { // the snapshot may be gone
			return v.plainPVC(w, nil, &api.VolumeBackup{VolumeName: volume}, one)
		}
		b, err := backupOf(content, volume)
		if err != nil {
			return v.plainPVC(w, nil, &api.VolumeBackup{VolumeName: volume}, one)
		}
		return v.plainPVC(w, content, b, one)
	})
}
