package snapshot

import (
	"context"
	"fmt"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/events"
	kubevirt "kubevirt.io/api/core/v1"
	api "kubevirt.io/api/snapshot/v1beta1"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"

	"github.com/nodevirt/nodevirt/controller/datavolume"
	"github.com/nodevirt/nodevirt/controller/volumesnapshot"
)

type (
	vmSnapshot     = api.VirtualMachineSnapshot
	vmSnapshotList = api.VirtualMachineSnapshotList
	vmContent      = api.VirtualMachineSnapshotContent
	instance       = kubevirt.VirtualMachineInstance
)

// volumes takes snapshots of PVCs; [volumesnapshot.Client].
type volumes interface {
	Classes(ctx context.Context) (all []volumesnapshot.Class, served bool, err error)
	List(ctx context.Context, namespace string, labels map[string]string) (map[string]volumesnapshot.Snapshot, error)
	Create(ctx context.Context, meta metav1.ObjectMeta, pvc, class string) error
	Delete(ctx context.Context, namespace string, s volumesnapshot.Snapshot) error
}

// dataVolumes reads CDI's objects; [datavolume.Client].
type dataVolumes interface {
	Get(ctx context.Context, namespace, name string) (datavolume.State, error)
}

// pods reads the pods of instances; package vmi's Pods.
type pods interface {
	PodOf(ctx context.Context, vmi *instance, name string) (*corev1.Pod, error)
}

// nodes gives an order to the VM in a pod; [control.Client].
type nodes interface {
	Control(ctx context.Context, p *corev1.Pod, most int, name string, arguments ...string) ([]byte, error)
}

const (
	// retry is the time between two attempts to lock a source or to freeze a guest, and
	// between two looks at VolumeSnapshots that are not ready.
	retry = 5 * time.Second
	// frozenPoll is the time between two looks at VolumeSnapshots that a frozen guest waits for.
	frozenPoll = 200 * time.Millisecond
	// conflictWait is about how long the cache takes to have another reconciler's write.
	conflictWait = 50 * time.Millisecond
)

// Reconciler takes snapshots from phase to phase.
//
//	InProgress: lock the VM ─▶ content ─▶ freeze, VolumeSnapshots, thaw ─▶ Succeeded, unlock
//	     └──────────┴──────────────┴─────────────────────┴─▶ Failed at the deadline, unlock
type Reconciler struct {
	// Client reads from the cache and must wait there for its own writes.
	Client client.Client
	// Live reads from the API server.
	Live client.Reader
	// Revisions reads and writes ControllerRevisions, which no cache has.
	Revisions client.Client
	// Volumes takes snapshots of PVCs.
	Volumes volumes
	// DataVolumes says whether CDI has filled a PVC.
	DataVolumes dataVolumes
	// Pods reads the pods of instances.
	Pods pods
	// Nodes reaches the nodes of pods.
	Nodes nodes
	// Events reach the users of snapshots.
	Events events.EventRecorder
	// Now is the time; a test may have its own.
	Now func() time.Time

	renewals renewals
}

// renewals are the times at which freezes were last extended, by the UIDs of snapshots.
type renewals struct {
	mu sync.Mutex
	at map[types.UID]time.Time
}

func (r *renewals) of(s *vmSnapshot) time.Time {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.at[s.UID]
}

// set notes a time; the zero time forgets the snapshot.
func (r *renewals) set(s *vmSnapshot, at time.Time) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if at.IsZero() {
		delete(r.at, s.UID)
		return
	}
	if r.at == nil {
		r.at = map[types.UID]time.Time{}
	}
	r.at[s.UID] = at
}

// Reconcile takes the next step for the snapshot of a name.
func (r *Reconciler) Reconcile(ctx context.Context, req ctrl.Request) (ctrl.Result, error) {
	s := new(vmSnapshot)
	if err := r.Client.Get(ctx, req.NamespacedName, s); err != nil {
		return ctrl.Result{}, client.IgnoreNotFound(err)
	}
	result, err := r.reconcile(ctx, s)
	if apierrors.IsConflict(err) { // another reconciler has written the VM
		return ctrl.Result{RequeueAfter: conflictWait}, nil
	}
	return result, err
}

func (r *Reconciler) reconcile(ctx context.Context, s *vmSnapshot) (ctrl.Result, error) {
	w, err := r.look(ctx, s)
	if err != nil {
		return ctrl.Result{}, err
	}
	switch {
	case s.DeletionTimestamp != nil:
		return ctrl.Result{}, r.remove(ctx, w)
	case phase(s) == api.Succeeded:
		return r.tend(ctx, w)
	case phase(s) == api.Failed, r.expired(s):
		return ctrl.Result{}, r.fail(ctx, w)
	}
	if err := r.keep(ctx, w); err != nil {
		return ctrl.Result{}, err
	}
	return r.take(ctx, w)
}

// take takes the next step for a snapshot that is in progress.
func (r *Reconciler) take(ctx context.Context, w *work) (ctrl.Result, error) {
	if w.vm == nil {
		return r.wait(ctx, w, 0, "Source does not exist")
	}
	if !w.locked {
		why, err := r.lock(ctx, w)
		if err != nil {
			return ctrl.Result{}, err
		}
		if why != "" {
			return r.wait(ctx, w, retry, "Source not locked "+why)
		}
	}
	if w.content == nil {
		if err := r.createContent(ctx, w); err != nil {
			return ctrl.Result{}, err
		}
	}
	again, err := r.drive(ctx, w)
	if err != nil {
		return ctrl.Result{}, err
	}
	if created(w.content) {
		r.renewals.set(w.s, time.Time{})
		if err := r.report(ctx, w, ""); err != nil {
			return ctrl.Result{}, err
		}
		return r.tend(ctx, w)
	}
	return r.wait(ctx, w, again, "Source locked and operation in progress")
}

// wait reports what a snapshot in progress waits for, and returns when to look again: at
// the deadline at the latest.
func (r *Reconciler) wait(ctx context.Context, w *work, again time.Duration, why string) (ctrl.Result, error) {
	if err := r.report(ctx, w, why); err != nil {
		return ctrl.Result{}, err
	}
	if limit, ok := deadline(w.s); ok {
		left := max(limit.Sub(r.Now()), 0) + time.Millisecond
		if again == 0 || left < again {
			again = left
		}
	}
	return ctrl.Result{RequeueAfter: again}, nil
}

// tend unlocks the source of a snapshot that has succeeded, and waits until restores can
// use it.
func (r *Reconciler) tend(ctx context.Context, w *work) (ctrl.Result, error) {
	if err := r.unlock(ctx, w); err != nil {
		return ctrl.Result{}, err
	}
	if w.content == nil {
		return ctrl.Result{}, r.report(ctx, w, "")
	}
	if err := r.refresh(ctx, w); err != nil {
		return ctrl.Result{}, err
	}
	if err := r.report(ctx, w, ""); err != nil {
		return ctrl.Result{}, err
	}
	if !ready(w.content) {
		return ctrl.Result{RequeueAfter: retry}, nil
	}
	return ctrl.Result{}, nil
}

// fail ends a snapshot that has passed its deadline. No content remains that is not whole.
func (r *Reconciler) fail(ctx context.Context, w *work) error {
	if err := r.release(ctx, w); err != nil {
		return err
	}
	return r.reportFailure(ctx, w)
}

// remove ends a snapshot that is being deleted.
func (r *Reconciler) remove(ctx context.Context, w *work) error {
	if !controllerutil.ContainsFinalizer(w.s, finalizer) {
		return nil
	}
	if err := r.release(ctx, w); err != nil {
		return err
	}
	before := w.s.DeepCopy()
	controllerutil.RemoveFinalizer(w.s, finalizer)
	return r.patch(ctx, before, w.s)
}

// release lets go of all that a snapshot holds: the guest, the content, the VM.
func (r *Reconciler) release(ctx context.Context, w *work) error {
	r.renewals.set(w.s, time.Time{})
	if w.content != nil && !created(w.content) && w.locked && w.writes() {
		// If this fails, the node thaws the guest by itself.
		_, _ = r.order(ctx, w, controlUnfreeze)
	}
	if err := r.releaseContent(ctx, w); err != nil {
		return err
	}
	return r.unlock(ctx, w)
}

// keep adds the finalizer that admission adds.
func (r *Reconciler) keep(ctx context.Context, w *work) error {
	if !controllerutil.AddFinalizer(w.s, finalizer) {
		return nil
	}
	if err := r.patch(ctx, w.was, w.s); err != nil {
		return err
	}
	w.was = w.s.DeepCopy()
	return nil
}

// patch writes the difference between two states of an object, unless it has changed
// meanwhile or is gone.
func (r *Reconciler) patch(ctx context.Context, before, now client.Object) error {
	p := client.MergeFromWithOptions(before, client.MergeFromWithOptimisticLock{})
	if err := r.Client.Patch(ctx, now, p); err != nil {
		return client.IgnoreNotFound(fmt.Errorf("write %s %s/%s: %w", kindOf(now), now.GetNamespace(), now.GetName(), err))
	}
	return nil
}

func (r *Reconciler) patchStatus(ctx context.Context, before, now client.Object) error {
	p := client.MergeFromWithOptions(before, client.MergeFromWithOptimisticLock{})
	if err := r.Client.Status().Patch(ctx, now, p); err != nil {
		return client.IgnoreNotFound(fmt.Errorf("write status of %s %s/%s: %w", kindOf(now), now.GetNamespace(), now.GetName(), err))
	}
	return nil
}

func kindOf(o client.Object) string {
	switch o.(type) {
	case *kubevirt.VirtualMachine:
		return "VM"
	case *vmContent:
		return "snapshot content"
	}
	return "snapshot"
}

func phase(s *vmSnapshot) api.VirtualMachineSnapshotPhase {
	if s.Status == nil {
		return api.PhaseUnset
	}
	return s.Status.Phase
}

// deadline returns when a snapshot that is still in progress fails; ok is false for never.
func deadline(s *vmSnapshot) (at time.Time, ok bool) {
	limit := api.DefaultFailureDeadline
	if d := s.Spec.FailureDeadline; d != nil {
		limit = d.Duration
	}
	return s.CreationTimestamp.Add(limit), limit > 0
}

func (r *Reconciler) expired(s *vmSnapshot) bool {
	limit, ok := deadline(s)
	return ok && r.Now().After(limit)
}
