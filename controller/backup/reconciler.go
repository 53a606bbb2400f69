package backup

import (
	"context"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/events"
	api "kubevirt.io/api/backup/v1alpha1"
	kubevirt "kubevirt.io/api/core/v1"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"

	"github.com/nodevirt/nodevirt/controller/mount"
	"github.com/nodevirt/nodevirt/shim/vm/hotplug/order"
)

type (
	vmBackup     = api.VirtualMachineBackup
	vmBackupList = api.VirtualMachineBackupList
	tracker      = api.VirtualMachineBackupTracker
	trackerList  = api.VirtualMachineBackupTrackerList
	instance     = kubevirt.VirtualMachineInstance
)

const (
	// finalizer is KubeVirt's. A backup has it until its node has ended it.
	finalizer = "backup.kubevirt.io/vmbackup-protection"
	// annotationInstance has the UID of the instance whose disks the backup copies.
	annotationInstance = "nodevirt.io/backup-instance"

	// retry is the time between two looks at what a backup waits for, poll that between two orders.
	retry = 5 * time.Second
	poll  = time.Second
	// conflictWait is about how long the cache takes to have another write.
	conflictWait = 50 * time.Millisecond
)

// nodes gives an order to the VM in a pod; package control's Client.
type nodes interface {
	Control(ctx context.Context, p *corev1.Pod, most int, name string, arguments ...string) ([]byte, error)
}

// Reconciler takes backups to their ends.
//
//	Initializing: what it waits for, the PVC mounted ─▶ Initiated: the node copies ─▶ Complete
//	                                                            └─▶ Failed
//
// In mode Pull:
//
//	Initiated ─▶ PreparingExport ◀─▶ ExportReady: clients read ─▶ Aborting: finished ─▶ Complete
type Reconciler struct {
	// Client reads from the cache and must wait there for its own writes.
	Client client.Client
	// Live reads from the API server.
	Live   client.Reader
	Mounts mount.Mounts
	Nodes  nodes
	// Now is the time; a test may have its own.
	Now func() time.Time
	// Events reach the users of backups.
	Events events.EventRecorder
}

// Reconcile takes the next step for the backup of a name.
func (r *Reconciler) Reconcile(ctx context.Context, req ctrl.Request) (ctrl.Result, error) {
	b := new(vmBackup)
	if err := r.Client.Get(ctx, req.NamespacedName, b); err != nil {
		return ctrl.Result{}, client.IgnoreNotFound(err)
	}
	again, err := r.reconcile(ctx, b)
	if apierrors.IsConflict(err) {
		again, err = conflictWait, nil
	}
	return ctrl.Result{RequeueAfter: again}, err
}

func (r *Reconciler) reconcile(ctx context.Context, b *vmBackup) (time.Duration, error) {
	w, err := r.look(ctx, b)
	if err != nil {
		return 0, err
	}
	switch {
	case b.DeletionTimestamp != nil:
		return r.abort(ctx, w)
	case ended(b):
		return 0, r.release(ctx, w)
	case !isInitiated(b):
		return r.prepare(ctx, w)
	case w.lost():
		return 0, r.fail(ctx, w, api.ReasonSourceLost, "the VM ended before the backup did")
	}
	return r.follow(ctx, w)
}

// prepare waits for what a backup needs, and says from then on that it is in progress.
func (r *Reconciler) prepare(ctx context.Context, w *work) (time.Duration, error) {
	if pulls(&w.backup.Spec) && w.left(r.Now()) <= 0 {
		return 0, r.fail(ctx, w, api.ReasonFailed, expired)
	}
	why, err := r.missing(ctx, w)
	if err != nil {
		return 0, err
	}
	if why != "" {
		return retry, r.report(ctx, w, progressing(api.ReasonInitializing, why))
	}
	if !controllerutil.ContainsFinalizer(w.backup, finalizer) { // before there is something to undo
		controllerutil.AddFinalizer(w.backup, finalizer)
		metav1.SetMetaDataAnnotation(&w.backup.ObjectMeta, annotationInstance, string(w.vmi.UID))
		if err := r.patch(ctx, w); err != nil {
			return 0, err
		}
	}
	container, why, err := r.mount(ctx, w)
	if err != nil {
		return 0, err
	}
	if container == "" {
		if why == "" {
			why = "PVC " + *w.backup.Spec.PvcName + " is being mounted on the VM's node"
		}
		return poll, r.report(ctx, w, progressing(api.ReasonInitializing, why))
	}
	if w.backup.Annotations[annotationInstance] != string(w.vmi.UID) { // the VM has restarted meanwhile
		metav1.SetMetaDataAnnotation(&w.backup.ObjectMeta, annotationInstance, string(w.vmi.UID))
		if err := r.patch(ctx, w); err != nil {
			return 0, err
		}
	}
	if err := r.report(ctx, w, progressing(api.ReasonInitiated, inProgress)); err != nil {
		return 0, err
	}
	return r.follow(ctx, w)
}

// follow has the node make the backup, and records how it ended. The order is repeated: the node
// makes a backup of a name once.
func (r *Reconciler) follow(ctx context.Context, w *work) (time.Duration, error) {
	if pulls(&w.backup.Spec) && w.left(r.Now()) <= 0 {
		return r.finish(ctx, w, "pull mode backup TTL has expired")
	}
	container, why, err := r.mount(ctx, w)
	if err != nil {
		return 0, err
	}
	if container == "" {
		if why == "" {
			why = inProgress
		}
		return poll, r.report(ctx, w, progressing(api.ReasonInitiated, why))
	}
	a, err := r.order(ctx, w, container)
	if err != nil {
		return 0, err
	}
	answer, err := r.give(ctx, w, order.BackUp, a)
	if err != nil {
		return retry, r.report(ctx, w, progressing(api.ReasonInitiated, clip(err.Error())))
	}
	w.take(answer)
	if err := r.announce(ctx, w, answer); err != nil {
		return 0, err
	}
	switch answer.State {
	case order.BackupCompleted:
		return 0, r.complete(ctx, w, answer)
	case order.BackupFailed:
		return 0, r.fail(ctx, w, api.ReasonFailed, answer.Message)
	case order.BackupReady:
		return r.pull(ctx, w)
	}
	return poll, r.report(ctx, w, progressing(api.ReasonInitiated, inProgress))
}

// complete records a backup that the node has completed: in the tracker first.
func (r *Reconciler) complete(ctx context.Context, w *work, answer order.Backup) error {
	if pulls(&w.backup.Spec) && !w.offered() {
		return r.fail(ctx, w, api.ReasonFailed, "the VM's node does not support mode Pull; update its shim")
	}
	if t := w.tracker; t != nil && latest(t) != w.checkpoint() {
		before, at := t.DeepCopy(), metav1.NewTime(answer.Start)
		if t.Status == nil {
			t.Status = new(api.VirtualMachineBackupTrackerStatus)
		}
		t.Status.LatestCheckpoint = &api.BackupCheckpoint{Name: w.checkpoint(), CreationTime: &at, Volumes: volumes(answer)}
		if err := r.Client.Status().Patch(ctx, t, client.MergeFromWithOptions(before, client.MergeFromWithOptimisticLock{})); client.IgnoreNotFound(err) != nil {
			return fmt.Errorf("write the checkpoint to backup tracker %s: %w", t.Name, err)
		}
	}
	reason, message := api.ReasonCompleted, "Successfully completed VirtualMachineBackup"
	if answer.Warning != "" {
		reason, message = api.ReasonCompletedWithWarning, "Completed VirtualMachineBackup, warning: "+clip(answer.Warning)
	}
	if err := r.end(ctx, w, api.ConditionComplete, reason, message); err != nil {
		return err
	}
	kind, event := corev1.EventTypeNormal, "VirtualMachineBackupCompletedSuccessfully"
	if answer.Warning != "" {
		kind, event = corev1.EventTypeWarning, "VirtualMachineBackupCompletedWithWarning"
	}
	r.Events.Eventf(w.backup, nil, kind, event, "Backup", "%s", message)
	return r.release(ctx, w)
}

// fail records that a backup has failed.
func (r *Reconciler) fail(ctx context.Context, w *work, reason, why string) error {
	message := "Backup has failed: " + clip(why)
	if err := r.end(ctx, w, api.ConditionFailed, reason, message); err != nil {
		return err
	}
	r.Events.Eventf(w.backup, nil, corev1.EventTypeWarning, "VirtualMachineBackupFailed", "Backup", "%s", message)
	return r.release(ctx, w)
}

// abort ends a backup that is being deleted. A node that makes it removes its files.
func (r *Reconciler) abort(ctx context.Context, w *work) (time.Duration, error) {
	if !controllerutil.ContainsFinalizer(w.backup, finalizer) {
		return 0, nil
	}
	if isInitiated(w.backup) && !ended(w.backup) && !w.lost() {
		if w.offered() {
			return r.finish(ctx, w, "")
		}
		answer, err := r.give(ctx, w, order.BackupCancel, order.Name{Name: w.name()})
		if err != nil {
			return retry, r.report(ctx, w, progressing(api.ReasonAborting, clip(err.Error())))
		}
		if answer.State == order.BackupWriting {
			return poll, r.report(ctx, w, progressing(api.ReasonAborting, "Backup is aborting"))
		}
	}
	return 0, r.release(ctx, w)
}

// release removes the export and unmounts the PVC of a backup that has ended, and then needs its finalizer no more.
func (r *Reconciler) release(ctx context.Context, w *work) error {
	if !controllerutil.ContainsFinalizer(w.backup, finalizer) {
		return nil
	}
	if err := (exports{r.Client}).remove(ctx, w); err != nil {
		return err
	}
	if w.vmi != nil {
		if err := r.Mounts.Unmount(ctx, w.vmi, w.volume()); err != nil {
			return err
		}
		if err := r.announce(ctx, w, order.Backup{}); err != nil {
			return err
		}
	}
	controllerutil.RemoveFinalizer(w.backup, finalizer)
	return r.patch(ctx, w)
}

func ended(b *vmBackup) bool {
	return b.Status != nil && (meta.IsStatusConditionTrue(b.Status.Conditions, string(api.ConditionComplete)) ||
		meta.IsStatusConditionTrue(b.Status.Conditions, string(api.ConditionFailed)))
}

// isInitiated reports whether the node may have got the order for a backup, which has not ended.
func isInitiated(b *vmBackup) bool {
	if b.Status == nil || ended(b) {
		return false
	}
	c := meta.FindStatusCondition(b.Status.Conditions, string(api.ConditionProgressing))
	return c != nil && c.Reason != api.ReasonInitializing
}
