package restore

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	api "kubevirt.io/api/snapshot/v1beta1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/nodevirt/nodevirt/controller/decode"
	"github.com/nodevirt/nodevirt/controller/diskguard"
	"github.com/nodevirt/nodevirt/controller/pod"
)

// annotationReplaced is a restore's: the PVCs that it replaces, as a [replacement] by each name.
const annotationReplaced = "restore.nodevirt.io/replaced"

// Annotations of a PersistentVolume while it goes from the temporary PVC to that of the wanted name: for which
// restore, and its own reclaim policy. Users cannot write PersistentVolumes, but they can write restores.
const (
	annotationMoves  = "restore.nodevirt.io/moves-to"
	annotationPolicy = "restore.nodevirt.io/reclaim-policy"
)

// replacement is the record of a PVC that a restored one replaces. The restore has it before the first act. Each act
// follows from the record and from what exists, so that another controller can continue at any point.
type replacement struct {
	// Former is the UID of the PVC that is replaced; "" for one that a user has deleted meanwhile.
	Former types.UID `json:"former,omitempty"`
	// Volume is the name of the PersistentVolume with the restored disk.
	Volume string `json:"volume"`
	// Request is the size that the restored PVC asks for.
	Request string `json:"request"`
}

// replacements returns the records of a restore by the names of the PVCs.
func replacements(rs *api.VirtualMachineRestore) (map[string]replacement, error) {
	all := map[string]replacement{}
	text := rs.Annotations[annotationReplaced]
	if text == "" {
		return all, nil
	}
	if err := decode.JSON([]byte(text), &all); err != nil {
		return nil, fmt.Errorf("annotation %s: %w", annotationReplaced, err)
	}
	return all, nil
}

// replacer puts restored disks into the place of PVCs, under their names.
//
//	temporary PVC bound ─▶ record ─▶ PV kept ─▶ former PVC deleted ─▶ temporary PVC deleted ─▶
//	PV reserved for the name ─▶ PVC bound to the PV ─▶ PV as it was, record removed
//
// The former disk is deleted once the restored one is bound. No later step can lose the restored one: until the end its
// PersistentVolume has the reclaim policy Retain.
type replacer struct {
	client client.Client
	live   client.Reader
	// persistent writes PersistentVolumes, which no cache has.
	persistent  client.Writer
	dataVolumes dataVolumes
}

// temporaryName returns the name of the PVC that a volume is restored to while another PVC has its own.
func temporaryName(w *work, volume string) string {
	return fmt.Sprintf("restore-%s-%s", w.rs.UID, volume)
}

// owner returns whose PVCs the restore may replace.
func (w *work) owner() diskguard.Owner {
	owner := diskguard.Owner{Name: w.rs.Spec.Target.Name}
	if w.vm != nil {
		owner.UID = w.vm.UID
	}
	return owner
}

// checkReplaceable returns an error if a PVC is no disk of the target, or if something else uses it.
func (r *replacer) checkReplaceable(ctx context.Context, w *work, source *api.VirtualMachine, b *api.VolumeBackup, pvc *corev1.PersistentVolumeClaim) error {
	exists := fmt.Sprintf("PVC %s exists", pvc.Name)
	switch {
	case policyOf(w.rs) != api.VolumeRestorePolicyInPlace:
		return fmt.Errorf("%s: delete it, or choose another name", exists)
	case pvc.Name != b.PersistentVolumeClaim.Name:
		return fmt.Errorf("%s: volumeRestorePolicy InPlace replaces only the PVC that the snapshot is of; delete it, or choose another restoreName", exists)
	case w.rs.Spec.Target.Name != source.Name || w.rs.Namespace != source.Namespace:
		return fmt.Errorf("%s: volumeRestorePolicy InPlace replaces PVCs only of VM %s, which the snapshot is of; choose another policy",
			exists, source.Name)
	}
	ours := pvc.UID == b.PersistentVolumeClaim.UID || w.vm != nil && (metav1.IsControlledBy(pvc, w.vm) || diskguard.VMNames(w.vm, pvc)) ||
		pvc.Labels[pod.RestoredLabel] == pod.LabelOf(source.Name)
	if !ours {
		return fmt.Errorf("%s, and it is neither a disk of VM %s nor the PVC that the snapshot is of: delete it, or choose another policy", exists, source.Name)
	}
	user, err := diskguard.OtherUser(ctx, r.live, pvc, w.owner())
	if err == nil && user != "" {
		err = waitFor("PVC %s must be replaced, and %s uses it: remove that, or choose another policy", pvc.Name, user)
	}
	return err
}

// begin records that the disk of a temporary PVC takes the place of another, once the disk is there.
func (r *replacer) begin(ctx context.Context, w *work, name string, temporary, former *corev1.PersistentVolumeClaim) error {
	pv, err := r.volumeOf(ctx, temporary)
	if err != nil {
		return err
	}
	all, err := replacements(w.rs)
	if err != nil {
		return err
	}
	one := replacement{Volume: pv.Name, Request: temporary.Spec.Resources.Requests.Storage().String()}
	if former != nil {
		one.Former = former.UID
	}
	all[name] = one
	return r.record(ctx, w, all)
}

// record writes the records of a restore.
func (r *replacer) record(ctx context.Context, w *work, all map[string]replacement) error {
	before, status := w.rs.DeepCopy(), w.rs.Status
	if len(all) == 0 {
		delete(w.rs.Annotations, annotationReplaced)
	} else {
		text, err := json.Marshal(all)
		if err != nil {
			return fmt.Errorf("encode annotation %s: %w", annotationReplaced, err)
		}
		metav1.SetMetaDataAnnotation(&w.rs.ObjectMeta, annotationReplaced, string(text))
	}
	if err := patch(ctx, r.client, before, w.rs); err != nil {
		return fmt.Errorf("write restore %s/%s: %w", w.rs.Namespace, w.rs.Name, err)
	}
	w.was = w.rs.DeepCopy()
	w.rs.Status = status
	return nil
}

// volumeOf returns the PersistentVolume that a PVC is bound to, if each says so of the other and the volume is what the
// PVC asked for.
func (r *replacer) volumeOf(ctx context.Context, pvc *corev1.PersistentVolumeClaim) (*corev1.PersistentVolume, error) {
	if pvc.Status.Phase != corev1.ClaimBound || pvc.Spec.VolumeName == "" {
		return nil, waitFor("Waiting for PVC %s", pvc.Name)
	}
	pv := new(corev1.PersistentVolume)
	if err := r.live.Get(ctx, client.ObjectKey{Name: pvc.Spec.VolumeName}, pv); err != nil {
		return nil, fmt.Errorf("read PersistentVolume %s of PVC %s: %w", pvc.Spec.VolumeName, pvc.Name, err)
	}
	ref, has, asked := pv.Spec.ClaimRef, pv.Spec.Capacity[corev1.ResourceStorage], pvc.Spec.Resources.Requests[corev1.ResourceStorage]
	switch {
	case ref == nil || ref.UID != pvc.UID:
		return nil, waitFor("Waiting for PersistentVolume %s of PVC %s", pv.Name, pvc.Name)
	case has.Cmp(asked) < 0:
		return nil, fmt.Errorf("PersistentVolume %s has %s, and PVC %s asks for %s", pv.Name, has.String(), pvc.Name, asked.String())
	case modeOf(pv.Spec.VolumeMode) != modeOf(pvc.Spec.VolumeMode):
		return nil, fmt.Errorf("PersistentVolume %s has volumeMode %s, and PVC %s %s", pv.Name, modeOf(pv.Spec.VolumeMode), pvc.Name, modeOf(pvc.Spec.VolumeMode))
	}
	return pv, nil
}

func modeOf(mode *corev1.PersistentVolumeMode) corev1.PersistentVolumeMode {
	if mode == nil {
		return corev1.PersistentVolumeFilesystem
	}
	return *mode
}

// proceed takes the next steps of a recorded replacement, until the restored disk is bound under the name. Plain returns
// the PVC of the name, without its size and volume.
func (r *replacer) proceed(ctx context.Context, w *work, volume, name string, plain func() *corev1.PersistentVolumeClaim) error {
	all, err := replacements(w.rs)
	if err != nil {
		return err
	}
	one := all[name]
	pv := new(corev1.PersistentVolume)
	if err := r.live.Get(ctx, client.ObjectKey{Name: one.Volume}, pv); err != nil {
		return fmt.Errorf("read PersistentVolume %s, which has the restored disk: %w", one.Volume, err)
	}
	temporary, err := r.read(ctx, w, temporaryName(w, volume))
	if err != nil {
		return err
	}
	current, err := r.read(ctx, w, name)
	if err != nil {
		return err
	}
	if current != nil && current.Annotations[annotationLast] == mark(w.rs) {
		if err := r.finish(ctx, w, pv, current); err != nil {
			return err
		}
		delete(all, name)
		return r.record(ctx, w, all)
	}
	if err := r.keep(ctx, w, name, pv, temporary); err != nil {
		return err
	}
	switch {
	case current != nil && current.UID == one.Former:
		return r.removeFormer(ctx, w, current, temporary, pv)
	case current != nil:
		return fmt.Errorf("PVC %s exists: another one has taken its name; delete it", name)
	case temporary != nil:
		if temporary.Annotations[annotationLast] != mark(w.rs) {
			return fmt.Errorf("PVC %s exists: delete it", temporary.Name)
		}
		if err := diskguard.Delete(ctx, r.client, diskguard.RestoreTemporary, temporary); err != nil {
			return err
		}
		return soon("Waiting for the end of PVC %s", temporary.Name)
	}
	if err := r.reserve(ctx, w, name, temporaryName(w, volume), pv); err != nil {
		return err
	}
	made := plain()
	made.Spec.VolumeName, made.Spec.StorageClassName, made.Spec.VolumeMode = pv.Name, &pv.Spec.StorageClassName, pv.Spec.VolumeMode
	if size, err := resource.ParseQuantity(one.Request); err == nil {
		made.Spec.Resources.Requests = corev1.ResourceList{corev1.ResourceStorage: size}
	}
	if err := r.client.Create(ctx, made); err != nil {
		return fmt.Errorf("create PVC %s: %w", name, err)
	}
	return soon("Waiting for PVC %s", name)
}

// read returns a PVC; nil for none.
func (r *replacer) read(ctx context.Context, w *work, name string) (*corev1.PersistentVolumeClaim, error) {
	key, pvc := client.ObjectKey{Namespace: w.rs.Namespace, Name: name}, new(corev1.PersistentVolumeClaim)
	err := r.live.Get(ctx, key, pvc)
	if apierrors.IsNotFound(err) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("read PVC %s: %w", key, err)
	}
	return pvc, nil
}

// moves is the value of [annotationMoves].
func moves(w *work, name string) string { return w.rs.Namespace + "/" + name + " " + string(w.rs.UID) }

// keep has the volume of the temporary PVC outlive it.
func (r *replacer) keep(ctx context.Context, w *work, name string, pv *corev1.PersistentVolume, temporary *corev1.PersistentVolumeClaim) error {
	if pv.Annotations[annotationMoves] == moves(w, name) && pv.Spec.PersistentVolumeReclaimPolicy == corev1.PersistentVolumeReclaimRetain {
		return nil
	}
	if temporary == nil || temporary.Annotations[annotationLast] != mark(w.rs) {
		return fmt.Errorf("PersistentVolume %s: PVC %s, whose disk it is, is gone", pv.Name, name)
	}
	if of, err := r.volumeOf(ctx, temporary); err != nil || of.Name != pv.Name {
		if err == nil {
			err = fmt.Errorf("PVC %s has PersistentVolume %s, and not %s", temporary.Name, of.Name, pv.Name)
		}
		return err
	}
	before := pv.DeepCopy()
	metav1.SetMetaDataAnnotation(&pv.ObjectMeta, annotationMoves, moves(w, name))
	if pv.Annotations[annotationPolicy] == "" {
		metav1.SetMetaDataAnnotation(&pv.ObjectMeta, annotationPolicy, string(pv.Spec.PersistentVolumeReclaimPolicy))
	}
	pv.Spec.PersistentVolumeReclaimPolicy = corev1.PersistentVolumeReclaimRetain
	if err := patch(ctx, r.persistent, before, pv); err != nil {
		return fmt.Errorf("keep PersistentVolume %s: %w", pv.Name, err)
	}
	return nil
}

// removeFormer deletes the PVC that is replaced: it was seen with no other user, and the restored disk is bound.
func (r *replacer) removeFormer(ctx context.Context, w *work, former, temporary *corev1.PersistentVolumeClaim, pv *corev1.PersistentVolume) error {
	if former.DeletionTimestamp != nil {
		return soon("Waiting for the end of PVC %s", former.Name)
	}
	if temporary == nil || pv.Spec.ClaimRef == nil || pv.Spec.ClaimRef.UID != temporary.UID {
		return fmt.Errorf("PVC %s is not replaced: the PVC with the restored disk is gone; delete the restore, and create another", former.Name)
	}
	user, err := diskguard.OtherUser(ctx, r.live, former, w.owner())
	if err != nil {
		return err
	}
	if user != "" {
		return waitFor("PVC %s must be replaced, and %s uses it: remove that, or choose another policy", former.Name, user)
	}
	if owner := metav1.GetControllerOf(former); isDataVolume(owner) { // CDI would fill it again
		if err := r.dataVolumes.MarkFilled(ctx, former.Namespace, owner.Name, map[string]string{annotationName: w.rs.Name}); err != nil {
			return err
		}
	}
	if err := diskguard.Delete(ctx, r.client, diskguard.RestoreReplaced, former); err != nil {
		return err
	}
	return soon("Waiting for the end of PVC %s", former.Name)
}

// reserve binds the volume to the name, whose PVC does not exist yet.
func (r *replacer) reserve(ctx context.Context, w *work, name, temporary string, pv *corev1.PersistentVolume) error {
	switch ref := pv.Spec.ClaimRef; {
	case ref == nil:
	case ref.Namespace != w.rs.Namespace || ref.Name != name && ref.Name != temporary:
		return fmt.Errorf("PersistentVolume %s, which has the restored disk, is reserved for PVC %s/%s", pv.Name, ref.Namespace, ref.Name)
	case ref.Name == name && ref.UID == "":
		return nil
	}
	before := pv.DeepCopy()
	pv.Spec.ClaimRef = &corev1.ObjectReference{APIVersion: "v1", Kind: "PersistentVolumeClaim", Namespace: w.rs.Namespace, Name: name}
	if err := patch(ctx, r.persistent, before, pv); err != nil {
		return fmt.Errorf("reserve PersistentVolume %s for PVC %s/%s: %w", pv.Name, w.rs.Namespace, name, err)
	}
	return nil
}

// finish gives the volume its reclaim policy back once the PVC of the name is bound to it.
func (r *replacer) finish(ctx context.Context, w *work, pv *corev1.PersistentVolume, pvc *corev1.PersistentVolumeClaim) error {
	switch ref := pv.Spec.ClaimRef; {
	case pvc.Spec.VolumeName != pv.Name:
		return fmt.Errorf("PVC %s is to have PersistentVolume %s and has %q", pvc.Name, pv.Name, pvc.Spec.VolumeName)
	case pvc.Status.Phase != corev1.ClaimBound || ref == nil || ref.UID != pvc.UID:
		return soon("Waiting for PVC %s", pvc.Name)
	case pv.Annotations[annotationMoves] != moves(w, pvc.Name): // done before
		return nil
	}
	return r.giveBack(ctx, pv)
}

// giveBack gives a volume its reclaim policy back.
func (r *replacer) giveBack(ctx context.Context, pv *corev1.PersistentVolume) error {
	before := pv.DeepCopy()
	pv.Annotations = maps.Clone(pv.Annotations)
	switch policy := corev1.PersistentVolumeReclaimPolicy(pv.Annotations[annotationPolicy]); policy {
	case corev1.PersistentVolumeReclaimDelete, corev1.PersistentVolumeReclaimRecycle:
		pv.Spec.PersistentVolumeReclaimPolicy = policy
	}
	delete(pv.Annotations, annotationMoves)
	delete(pv.Annotations, annotationPolicy)
	if err := patch(ctx, r.persistent, before, pv); err != nil {
		return fmt.Errorf("write PersistentVolume %s: %w", pv.Name, err)
	}
	return nil
}

// settle ends the replacements of a restore that is being deleted: those whose former PVC is there are undone, others
// completed, so that the name has a disk.
func (r *replacer) settle(ctx context.Context, w *work, plain func(volume, name string) *corev1.PersistentVolumeClaim) error {
	all, err := replacements(w.rs)
	if err != nil || len(all) == 0 {
		return err
	}
	for _, one := range w.rs.Status.Restores {
		name := one.PersistentVolumeClaimName
		record, recorded := all[name]
		if !recorded {
			continue
		}
		current, err := r.read(ctx, w, name)
		if err != nil {
			return err
		}
		if current == nil || current.UID != record.Former || current.DeletionTimestamp != nil {
			if err := r.proceed(ctx, w, one.VolumeName, name, func() *corev1.PersistentVolumeClaim { return plain(one.VolumeName, name) }); err != nil {
				return err
			}
			continue
		}
		pv := new(corev1.PersistentVolume)
		switch err := r.live.Get(ctx, client.ObjectKey{Name: record.Volume}, pv); {
		case err == nil && pv.Annotations[annotationMoves] == moves(w, name):
			if err := r.giveBack(ctx, pv); err != nil {
				return err
			}
		case client.IgnoreNotFound(err) != nil:
			return fmt.Errorf("read PersistentVolume %s: %w", record.Volume, err)
		}
		delete(all, name)
		if err := r.record(ctx, w, all); err != nil {
			return err
		}
	}
	return nil
}
