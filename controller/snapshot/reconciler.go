package snapshot

import (
	"context"
	"errors"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/events"
	kubevirt "kubevirt.io/api/core/v1"
	api "kubevirt.io/api/snapshot/v1beta1"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"

	"github.com/nodevirt/nodevirt/controller/datavolume"
	"github.com/nodevirt/nodevirt/controller/memory"
	"github.com/nodevirt/nodevirt/controller/pod"
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

// Options are what the snapshots' reconciler works with.
type Options struct {
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
	// Holder is the image of the pods that have PVCs for memory mounted.
	Holder pod.Holder
	// Events reach the users of snapshots.
	Events events.EventRecorder
	// Now is the time; a test may have its own.
	Now func() time.Time
}

// Reconciler takes snapshots from phase to phase. Its parts take the steps.
//
//	InProgress: lock the VM ─▶ content ─▶ freeze, VolumeSnapshots, thaw ─▶ Succeeded, unlock
//	     └──────────┴──────────────┴─────────────────────┴─▶ Failed at the deadline, unlock
type Reconciler struct {
	client   client.Client
	now      func() time.Time
	writer   patcher
	sources  *sources
	contents *contents
	driver   *driver
	guests   interface {
		forget(s *vmSnapshot)
		order(ctx context.Context, w *work, control string, arguments ...string) (string, error)
	}
	statuses interface {
		report(ctx context.Context, w *work, why string) error
		reportFailure(ctx context.Context, w *work) error
	}
}

// NewReconciler makes the parts of a reconciler, and joins them.
func NewReconciler(o Options) *Reconciler {
	w := &writer{client: o.Client}
	captures, used := &revisions{revisions: o.Revisions}, usage{o.Revisions}
	guests := &guests{pods: o.Pods, nodes: o.Nodes, now: o.Now}
	statuses := &reporter{writer: w, now: o.Now}
	contents := &contents{
		client: o.Client, live: o.Live, usage: used, volumes: o.Volumes, events: o.Events, writer: w, captures: captures,
	}
	memories := memories{&memory.Saves{Live: o.Live, Uncached: o.Revisions, Pods: o.Pods, Nodes: o.Nodes, Holder: o.Holder}}
	return &Reconciler{
		client: o.Client, now: o.Now, writer: w,
		sources:  &sources{client: o.Client, live: o.Live, volumes: o.Volumes, dataVolumes: o.DataVolumes, usage: used, writer: w},
		contents: contents,
		driver: &driver{
			volumes: o.Volumes, events: o.Events, now: o.Now, captures: captures, contents: contents, guests: guests, statuses: statuses,
			memories: memories,
		},
		guests:   guests,
		statuses: statuses,
	}
}

// Reconcile takes the next step for the snapshot of a name.
func (r *Reconciler) Reconcile(ctx context.Context, req ctrl.Request) (ctrl.Result, error) {
	s := new(vmSnapshot)
	if err := r.client.Get(ctx, req.NamespacedName, s); err != nil {
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
		return r.remove(ctx, w)
	case phase(s) == api.Succeeded:
		return r.tend(ctx, w)
	case phase(s) == api.Failed, r.expired(s):
		return ctrl.Result{}, r.fail(ctx, w)
	}
	if err := r.keep(ctx, w); err != nil {
		return ctrl.Result{}, err
	}
	limited, cancel := r.untilDeadline(ctx, s)
	defer cancel()
	result, err := r.take(limited, w)
	if limited.Err() != nil && ctx.Err() == nil { // what was going on did not end in time
		return ctrl.Result{RequeueAfter: time.Millisecond}, nil
	}
	return result, err
}

// untilDeadline bounds what is done for a snapshot that is in progress, such as an order to a node, by its deadline.
func (r *Reconciler) untilDeadline(ctx context.Context, s *vmSnapshot) (context.Context, context.CancelFunc) {
	limit, ok := deadline(s)
	if !ok {
		return context.WithCancel(ctx)
	}
	return context.WithTimeout(ctx, limit.Sub(r.now()))
}

// take takes the next step for a snapshot that is in progress.
func (r *Reconciler) take(ctx context.Context, w *work) (ctrl.Result, error) {
	if w.vm == nil {
		return r.wait(ctx, w, 0, "Source does not exist")
	}
	if !w.locked {
		why, err := r.sources.lock(ctx, w)
		if err != nil {
			return ctrl.Result{}, err
		}
		if why != "" {
			return r.wait(ctx, w, retry, "Source not locked "+why)
		}
	}
	if w.content == nil {
		if err := r.contents.create(ctx, w); err != nil {
			return ctrl.Result{}, err
		}
	}
	again, err := r.driver.drive(ctx, w)
	if err != nil && !created(w.content) {
		return ctrl.Result{}, errors.Join(err, r.statuses.report(ctx, w, inProgress))
	}
	if err != nil {
		return ctrl.Result{}, err
	}
	if created(w.content) {
		r.guests.forget(w.s)
		if err := r.statuses.report(ctx, w, ""); err != nil {
			return ctrl.Result{}, err
		}
		return r.tend(ctx, w)
	}
	return r.wait(ctx, w, again, inProgress)
}

const inProgress = "Source locked and operation in progress"

// wait reports what a snapshot in progress waits for, and returns when to look again: at
// the deadline at the latest.
func (r *Reconciler) wait(ctx context.Context, w *work, again time.Duration, why string) (ctrl.Result, error) {
	if err := r.statuses.report(ctx, w, why); err != nil {
		return ctrl.Result{}, err
	}
	if limit, ok := deadline(w.s); ok {
		left := max(limit.Sub(r.now()), 0) + time.Millisecond
		if again == 0 || left < again {
			again = left
		}
	}
	return ctrl.Result{RequeueAfter: again}, nil
}

// tend unlocks the source of a snapshot that has succeeded, and waits until restores can
// use it.
func (r *Reconciler) tend(ctx context.Context, w *work) (ctrl.Result, error) {
	if err := r.sources.unlock(ctx, w); err != nil {
		return ctrl.Result{}, err
	}
	if w.content == nil {
		return ctrl.Result{}, r.statuses.report(ctx, w, "")
	}
	if err := r.driver.refresh(ctx, w); err != nil {
		return ctrl.Result{}, err
	}
	if err := r.statuses.report(ctx, w, ""); err != nil {
		return ctrl.Result{}, err
	}
	if !ready(w.content) {
		return ctrl.Result{RequeueAfter: retry}, nil
	}
	return ctrl.Result{}, nil
}

// fail ends a snapshot that has passed its deadline. It says so before it thaws the guest, for which a node may keep
// it waiting. No content remains that is not whole.
func (r *Reconciler) fail(ctx context.Context, w *work) error {
	if phase(w.s) != api.Failed {
		if err := r.statuses.reportFailure(ctx, w); err != nil {
			return err
		}
	}
	if err := r.release(ctx, w); err != nil {
		return err
	}
	return r.statuses.reportFailure(ctx, w)
}

// remove ends a snapshot that is being deleted, once no PVC is waiting to be filled from it.
func (r *Reconciler) remove(ctx context.Context, w *work) (ctrl.Result, error) {
	if !controllerutil.ContainsFinalizer(w.s, finalizer) {
		return ctrl.Result{}, nil
	}
	if waiting, err := r.contents.waiting(ctx, w); waiting || err != nil {
		return ctrl.Result{RequeueAfter: retry}, err
	}
	if err := r.release(ctx, w); err != nil {
		return ctrl.Result{}, err
	}
	before := w.s.DeepCopy()
	controllerutil.RemoveFinalizer(w.s, finalizer)
	return ctrl.Result{}, r.writer.patch(ctx, before, w.s)
}

// release lets go of all that a snapshot holds: the guest, the content, the VM.
func (r *Reconciler) release(ctx context.Context, w *work) error {
	r.guests.forget(w.s)
	switch {
	case w.content == nil || created(w.content) || !w.locked:
	case MemoryPVC(w.content) != "" && w.vmi != nil:
		// If this fails, the guest goes on by itself.
		_, _ = r.driver.memories.end(ctx, w)
	case w.writes():
		// If this fails, the node thaws the guest by itself.
		_, _ = r.guests.order(ctx, w, controlUnfreeze)
	}
	if err := r.contents.release(ctx, w); err != nil {
		return err
	}
	return r.sources.unlock(ctx, w)
}

// keep adds the finalizer that admission adds.
func (r *Reconciler) keep(ctx context.Context, w *work) error {
	if !controllerutil.AddFinalizer(w.s, finalizer) {
		return nil
	}
	if err := r.writer.patch(ctx, w.was, w.s); err != nil {
		return err
	}
	w.was = w.s.DeepCopy()
	return nil
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
	return ok && r.now().After(limit)
}
