package restore

import (
	"context"
	"fmt"
	"maps"
	"slices"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	kubevirt "kubevirt.io/api/core/v1"
	api "kubevirt.io/api/snapshot/v1beta1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/nodevirt/nodevirt/controller/datavolume"
	"github.com/nodevirt/nodevirt/controller/diskguard"
	"github.com/nodevirt/nodevirt/controller/pod"
	"github.com/nodevirt/nodevirt/controller/state"
)

// owners has a restored VM own its disks, and deletes those that it has no more.
type owners struct {
	client      client.Client
	live        client.Reader
	revisions   client.Client
	dataVolumes dataVolumes
}

// own makes the restored VM the owner of its PVCs, unless the restore's policy is another,
// and of its revisions.
func (o *owners) own(ctx context.Context, w *work) error {
	if p := w.rs.Spec.VolumeOwnershipPolicy; p == nil || *p == api.VolumeOwnershipPolicyVm {
		for _, one := range w.rs.Status.Restores {
			pvc := new(corev1.PersistentVolumeClaim)
			key := client.ObjectKey{Namespace: w.rs.Namespace, Name: one.PersistentVolumeClaimName}
			if err := o.live.Get(ctx, key, pvc); err != nil {
				return fmt.Errorf("read PVC %s: %w", key, err)
			}
			if policyOf(w.rs) == api.VolumeRestorePolicyInPlace && pvc.Annotations[datavolume.AnnotationFilledFor] != "" {
				continue // its DataVolume takes it
			}
			if owned := one.DataVolumeName != nil || pvc.Annotations[annotationOwned] == w.rs.Name; !owned || metav1.GetControllerOf(pvc) != nil {
				continue
			}
			if err := o.ownPVC(ctx, w, one, pvc); err != nil {
				return err
			}
		}
	}
	for _, what := range []string{"instancetype", "preference"} {
		revision := new(appsv1.ControllerRevision)
		key := client.ObjectKey{Namespace: w.rs.Namespace, Name: revisionName(w.rs, what)}
		err := o.revisions.Get(ctx, key, revision)
		if apierrors.IsNotFound(err) {
			continue
		}
		if err != nil {
			return fmt.Errorf("read ControllerRevision %s: %w", key, err)
		}
		if metav1.IsControlledBy(revision, w.vm) {
			continue
		}
		if err := setOwner(ctx, w, o.revisions, revision); err != nil {
			return err
		}
	}
	return nil
}

// ownPVC makes the restored VM the owner of a PVC: in a cluster with CDI that of the DataVolume which the template of
// the PVC's volume stands for.
func (o *owners) ownPVC(ctx context.Context, w *work, one api.VolumeRestore, pvc *corev1.PersistentVolumeClaim) error {
	// CDI takes a PVC only once it is bound, which with some StorageClasses is when the VM starts.
	if one.DataVolumeName == nil || pvc.Status.Phase != corev1.ClaimBound {
		return setOwner(ctx, w, o.client, pvc)
	}
	name := *one.DataVolumeName
	i := templateOf(w.vm.Spec.DataVolumeTemplates, name)
	state, err := o.dataVolumes.Get(ctx, w.rs.Namespace, name)
	switch {
	case err != nil:
		return err
	case i < 0 || !state.Served:
		return setOwner(ctx, w, o.client, pvc)
	}
	if pvc.Annotations[datavolume.AnnotationFilledFor] != name {
		before := pvc.DeepCopy()
		metav1.SetMetaDataAnnotation(&pvc.ObjectMeta, datavolume.AnnotationFilledFor, name)
		delete(pvc.Annotations, annotationOwned)
		if err := patch(ctx, o.client, before, pvc); err != nil {
			return fmt.Errorf("write PVC %s: %w", pvc.Name, err)
		}
	}
	t := w.vm.Spec.DataVolumeTemplates[i]
	meta := t.ObjectMeta.DeepCopy()
	meta.Namespace, meta.OwnerReferences = w.rs.Namespace, []metav1.OwnerReference{ownedBy(w.vm)}
	metav1.SetMetaDataAnnotation(meta, annotationName, w.rs.Name)
	metav1.SetMetaDataLabel(meta, kubevirt.CreatedByLabel, string(w.vm.UID))
	return o.dataVolumes.CreateFilled(ctx, *meta, t.Spec, *pvc.Spec.Resources.Requests.Storage())
}

func setOwner(ctx context.Context, w *work, by client.Writer, o client.Object) error {
	before := o.DeepCopyObject().(client.Object)
	o.SetOwnerReferences([]metav1.OwnerReference{ownedBy(w.vm)})
	annotations := maps.Clone(o.GetAnnotations())
	delete(annotations, annotationOwned)
	o.SetAnnotations(annotations)
	if err := patch(ctx, by, before, o); err != nil {
		return fmt.Errorf("own %s: %w", o.GetName(), err)
	}
	return nil
}

// patch writes what has changed of an object since before. It fails if another client has written it meanwhile.
func patch(ctx context.Context, by client.Writer, before, o client.Object) error {
	return by.Patch(ctx, o, client.MergeFromWithOptions(before, client.MergeFromWithOptimisticLock{}))
}

// deleteObsolete deletes the disks of templates that the restored VM does not have, and its former persistent state,
// if they are the VM's.
func (o *owners) deleteObsolete(ctx context.Context, w *work) error {
	if err := o.dropState(ctx, w); err != nil {
		return err
	}
	for _, name := range w.rs.Status.DeletedDataVolumes {
		if err := o.deleteDisk(ctx, w, name); err != nil {
			return err
		}
	}
	return nil
}

// deleteDisk deletes the disk of a former template, if it is the VM's and nothing else uses it. One that something uses
// is not the VM's any more.
func (o *owners) deleteDisk(ctx context.Context, w *work, name string) error {
	pvc, key := new(corev1.PersistentVolumeClaim), client.ObjectKey{Namespace: w.rs.Namespace, Name: name}
	err := o.live.Get(ctx, key, pvc)
	if apierrors.IsNotFound(err) {
		return o.dataVolumes.DeleteOwned(ctx, w.rs.Namespace, name, w.vm)
	}
	if err != nil {
		return fmt.Errorf("read PVC %s: %w", key, err)
	}
	user, err := diskguard.OtherUser(ctx, o.live, pvc, w.owner())
	if err != nil {
		return err
	}
	if user != "" {
		release := func(all []metav1.OwnerReference) []metav1.OwnerReference {
			return slices.DeleteFunc(all, func(owner metav1.OwnerReference) bool { return owner.UID == w.vm.UID })
		}
		if err := o.dataVolumes.ChangeOwners(ctx, w.rs.Namespace, name, release); err != nil || !metav1.IsControlledBy(pvc, w.vm) {
			return err
		}
		before := pvc.DeepCopy()
		pvc.OwnerReferences = release(pvc.OwnerReferences)
		if err := patch(ctx, o.client, before, pvc); err != nil {
			return fmt.Errorf("release PVC %s, which %s uses: %w", key, user, err)
		}
		return nil
	}
	if err := o.dataVolumes.DeleteOwned(ctx, w.rs.Namespace, name, w.vm); err != nil || !metav1.IsControlledBy(pvc, w.vm) {
		return err
	}
	return diskguard.Delete(ctx, o.client, diskguard.RestoreObsolete, pvc)
}

// dropState deletes the PVCs with the persistent state that the VM had, if the restore brought another. One that is
// not the VM's own loses its label.
func (o *owners) dropState(ctx context.Context, w *work) error {
	i := slices.IndexFunc(w.rs.Status.Restores, func(one api.VolumeRestore) bool { return pod.IsSavedState(one.VolumeName) })
	if i < 0 {
		return nil
	}
	all, err := state.Labelled(ctx, o.live, w.vm.Namespace, w.vm.Name)
	if err != nil {
		return err
	}
	for n := range all {
		pvc := &all[n]
		if pvc.Name == w.rs.Status.Restores[i].PersistentVolumeClaimName || pvc.DeletionTimestamp != nil {
			continue
		}
		if metav1.IsControlledBy(pvc, w.vm) {
			if err := diskguard.Delete(ctx, o.client, diskguard.RestoreState, pvc); err != nil {
				return err
			}
			continue
		}
		before := pvc.DeepCopy()
		delete(pvc.Labels, pod.StateLabel)
		if err := patch(ctx, o.client, before, pvc); client.IgnoreNotFound(err) != nil {
			return fmt.Errorf("write PVC %s/%s: %w", pvc.Namespace, pvc.Name, err)
		}
	}
	return nil
}
