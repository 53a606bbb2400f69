package backup

import (
	"context"
	"fmt"

	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	api "kubevirt.io/api/backup/v1alpha1"
	kubevirt "kubevirt.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/nodevirt/nodevirt/shim/vm/hotplug/order"
)

// announce says in the instance's status that it is being backed up, and, with an answer without a
// name, that it is not any more: as with KubeVirt the status of a backup that has ended is the
// backup's alone.
func (r *Reconciler) announce(ctx context.Context, w *work, answer order.Backup) error {
	tracking := w.vmi.Status.ChangedBlockTracking
	if tracking == nil {
		return nil
	}
	had := tracking.BackupStatus
	wanted := w.announcement(answer)
	if wanted == nil && (had == nil || had.BackupName != w.backup.Name) || equality.Semantic.DeepEqual(had, wanted) {
		return nil
	}
	patch := client.MergeFrom(w.vmi.DeepCopy())
	tracking.BackupStatus = wanted
	if err := r.Client.Status().Patch(ctx, w.vmi, patch); err != nil {
		return client.IgnoreNotFound(fmt.Errorf("write the backup to the status of VMI %s/%s: %w", w.vmi.Namespace, w.vmi.Name, err))
	}
	return nil
}

// announcement returns what an instance's status says of a backup; nil without one.
func (w *work) announcement(answer order.Backup) *kubevirt.VirtualMachineInstanceBackupStatus {
	if answer.Name == "" {
		return nil
	}
	s := &kubevirt.VirtualMachineInstanceBackupStatus{
		BackupName: w.backup.Name, StartTimestamp: w.backup.CreationTimestamp.DeepCopy(), Volumes: volumes(answer),
	}
	if w.tracker != nil {
		s.CheckpointName = new(w.checkpoint())
	}
	if answer.Warning != "" {
		s.BackupMsg = new(clip(answer.Warning))
	}
	switch answer.State {
	case order.BackupWriting: // the guest may not be frozen yet
		return s
	case order.BackupCompleted, order.BackupFailed:
		s.Completed, s.Failed = true, answer.State == order.BackupFailed
		end := metav1.NewTime(answer.End).Rfc3339Copy()
		s.EndTimestamp = &end
		if s.Failed {
			s.BackupMsg = new(clip(answer.Message))
		}
	}
	s.QuiesceStatus = string(map[order.Quiesce]api.QuiesceStatus{
		order.QuiesceSucceeded: api.QuiesceSucceeded, order.QuiesceFailed: api.QuiesceFailed, order.QuiesceSkipped: api.QuiesceSkipped,
	}[answer.Quiesce])
	return s
}
