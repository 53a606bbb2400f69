package backup

import (
	"context"
	"fmt"

	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	api "kubevirt.io/api/backup/v1alpha1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/nodevirt/nodevirt/shim/vm/hotplug/order"
)

// inProgress is KubeVirt's message of a backup that a node makes.
const inProgress = "Backup is in progress"

// progressing returns the condition of a backup that has not ended.
func progressing(reason, message string) metav1.Condition {
	return metav1.Condition{Type: string(api.ConditionProgressing), Status: metav1.ConditionTrue, Reason: reason, Message: message}
}

// take takes over what the node says of a backup.
func (w *work) take(answer order.Backup) {
	s := w.status()
	s.Type = typeOf(answer)
	s.IncludedVolumes = w.offers(volumes(answer))
	if w.tracker != nil {
		s.CheckpointName = new(w.checkpoint())
	}
	c := metav1.Condition{Type: string(api.ConditionQuiesced), Status: metav1.ConditionFalse}
	switch {
	case answer.State == order.BackupWriting: // the guest may not be frozen yet
		return
	case answer.Quiesce == order.QuiesceSucceeded:
		c.Status, c.Reason, c.Message = metav1.ConditionTrue, api.ReasonQuiesceSucceeded, "Guest filesystem was successfully quiesced"
	case answer.Quiesce == order.QuiesceFailed:
		c.Reason, c.Message = api.ReasonQuiesceFailed, "Guest filesystem quiesce failed"
	default:
		c.Reason, c.Message = api.ReasonQuiesceSkipped, "Guest filesystem quiesce was skipped"
	}
	meta.SetStatusCondition(&s.Conditions, c)
}

// volumes returns the disks in a backup.
func volumes(answer order.Backup) (all []api.BackupVolumeInfo) {
	for _, d := range answer.Disks {
		all = append(all, api.BackupVolumeInfo{VolumeName: d.Disk, DiskTarget: d.Target})
	}
	return all
}

func (w *work) status() *api.VirtualMachineBackupStatus {
	if w.backup.Status == nil {
		w.backup.Status = new(api.VirtualMachineBackupStatus)
	}
	return w.backup.Status
}

// end writes the status of a backup that has ended.
func (r *Reconciler) end(ctx context.Context, w *work, how api.ConditionType, reason, message string) error {
	s := w.status()
	if how == api.ConditionFailed {
		s.CheckpointName = nil
	}
	w.withdraw()
	meta.SetStatusCondition(&s.Conditions, metav1.Condition{Type: string(how), Status: metav1.ConditionTrue, Reason: reason, Message: message})
	return r.report(ctx, w, metav1.Condition{Type: string(api.ConditionProgressing), Status: metav1.ConditionFalse, Reason: reason, Message: message})
}

// report writes the status with a condition, if it has changed.
func (r *Reconciler) report(ctx context.Context, w *work, c metav1.Condition) error {
	meta.SetStatusCondition(&w.status().Conditions, c)
	if equality.Semantic.DeepEqual(w.was.Status, w.backup.Status) {
		return nil
	}
	wanted := w.backup.Status.DeepCopy()
	patch := client.MergeFromWithOptions(w.was, client.MergeFromWithOptimisticLock{})
	if err := r.Client.Status().Patch(ctx, w.backup, patch); err != nil {
		return client.IgnoreNotFound(fmt.Errorf("write status of backup %s/%s: %w", w.backup.Namespace, w.backup.Name, err))
	}
	w.backup.Status = wanted
	w.was = w.backup.DeepCopy()
	return nil
}

// patch writes the backup's metadata.
func (r *Reconciler) patch(ctx context.Context, w *work) error {
	status := w.backup.Status.DeepCopy()
	patch := client.MergeFromWithOptions(w.was, client.MergeFromWithOptimisticLock{})
	if err := r.Client.Patch(ctx, w.backup, patch); err != nil {
		return client.IgnoreNotFound(fmt.Errorf("write backup %s/%s: %w", w.backup.Namespace, w.backup.Name, err))
	}
	w.was = w.backup.DeepCopy()
	w.backup.Status = status
	return nil
}
