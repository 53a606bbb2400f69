package restore

import (
	"context"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/events"
	kubevirt "kubevirt.io/api/core/v1"
	api "kubevirt.io/api/snapshot/v1beta1"
	cdi "kubevirt.io/containerized-data-importer-api/pkg/apis/core/v1beta1"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"

	"github.com/nodevirt/nodevirt/controller/datavolume"
	"github.com/nodevirt/nodevirt/controller/volumesnapshot"
)

// KubeVirt's annotations: of a VM and a PVC, which restore it comes from, of a PVC its name, and of one that the
// restored VM is to own the restore's name.
const (
	annotationLast  = "restore.kubevirt.io/lastRestoreUID"
	annotationName  = "restore.kubevirt.io/name"
	annotationOwned = "restore.kubevirt.io/owned-by-vm"
)

// annotationContent is CDI's: a PVC's files are a VM's disk.
const annotationContent = "cdi.kubevirt.io/storage.contentType"

const (
	// retry is the time between two looks at what a restore waits for.
	retry = 2 * time.Second
	// moment is that for what ends within a moment.
	moment = 200 * time.Millisecond
	// conflictWait is about how long the cache takes to have another reconciler's write.
	conflictWait = 50 * time.Millisecond
)

// snapshots reads VolumeSnapshots; [volumesnapshot.Client].
type snapshots interface {
	Get(ctx context.Context, namespace, name string) (*volumesnapshot.Snapshot, error)
}

// dataVolumes creates and deletes CDI's objects; package datavolume's Client.
type dataVolumes interface {
	Get(ctx context.Context, namespace, name string) (datavolume.State, error)
	MarkFilled(ctx context.Context, namespace, name string, annotations map[string]string) error
	CreateFilled(ctx context.Context, meta metav1.ObjectMeta, template cdi.DataVolumeSpec, size resource.Quantity) error
	DeleteOwned(ctx context.Context, namespace, name string, owner metav1.Object) error
	ChangeOwners(ctx context.Context, namespace, name string, change func([]metav1.OwnerReference) []metav1.OwnerReference) error
}

// binder has Kubernetes bind PVCs of classes that wait for a pod; package vmi's Consumers.
type binder interface {
	Bind(ctx context.Context, vmi *kubevirt.VirtualMachineInstance, owner metav1.OwnerReference, pvcs []*corev1.PersistentVolumeClaim) (string, error)
	Release(ctx context.Context, owner types.UID, pvc client.ObjectKey) (none bool, err error)
}

// Options are what the restores' reconciler works with.
type Options struct {
	// Client reads from the cache and must wait there for its own writes.
	Client client.Client
	// Live reads from the API server.
	Live client.Reader
	// Uncached reads and writes ControllerRevisions and PersistentVolumes, which no cache has.
	Uncached client.Client
	// Snapshots reads VolumeSnapshots.
	Snapshots snapshots
	// DataVolumes creates those of a restored VM, and deletes those that it does not have any more.
	DataVolumes dataVolumes
	// Binder has PVCs bound that wait for a pod.
	Binder binder
	// Events reach the users of restores.
	Events events.EventRecorder
	// Now is the time; a test may have its own.
	Now func() time.Time
}

// Reconciler restores VMs.
//
//	target stopped ─▶ lock ─▶ names ─▶ PVCs ─▶ the VM's spec ─▶ owners, obsolete disks ─▶ complete
type Reconciler struct {
	client   client.Client
	live     client.Reader
	events   events.EventRecorder
	now      func() time.Time
	statuses interface {
		progress
		fail(ctx context.Context, w *work, reason string) error
	}
	volumes *volumes
	targets *targets
	owners  *owners
}

// NewReconciler makes the parts of a reconciler, and joins them.
func NewReconciler(o Options) *Reconciler {
	statuses := &reporter{client: o.Client, now: o.Now}
	r := &Reconciler{
		client: o.Client, live: o.Live, events: o.Events, now: o.Now,
		statuses: statuses,
		targets:  &targets{client: o.Client, revisions: o.Uncached},
		owners:   &owners{client: o.Client, live: o.Live, revisions: o.Uncached, dataVolumes: o.DataVolumes},
	}
	r.volumes = &volumes{
		client: o.Client, live: o.Live, snapshots: o.Snapshots, statuses: statuses, binder: o.Binder,
		replacer: &replacer{client: o.Client, live: o.Live, persistent: o.Uncached, dataVolumes: o.DataVolumes},
		contentOf: func(ctx context.Context, w *work) (*api.VirtualMachineSnapshotContent, error) {
			_, content, err := r.source(ctx, w)
			return content, err
		},
	}
	return r
}

// work is a restore with its target.
type work struct {
	rs *api.VirtualMachineRestore
	// was is the restore as it was last read or written.
	was *api.VirtualMachineRestore
	// vm is the target; nil if there is none.
	vm *kubevirt.VirtualMachine
	// vmi is an instance of the target's name; nil for none.
	vmi *kubevirt.VirtualMachineInstance
}

// mark is the value of the annotation that says that an object comes from a restore.
func mark(rs *api.VirtualMachineRestore) string { return rs.Name + "-" + string(rs.UID) }

// restored reports whether the target's spec is the snapshot's.
func (w *work) restored() bool {
	return w.vm != nil && w.vm.Annotations[annotationLast] == mark(w.rs)
}

// waitError says what a restore waits for, and when it looks again.
type waitError struct {
	reason string
	again  time.Duration
}

func (e *waitError) Error() string { return e.reason }

func waitFor(format string, args ...any) error {
	return &waitError{fmt.Sprintf(format, args...), retry}
}

// soon is for what Kubernetes does within moments.
func soon(format string, args ...any) error { return &waitError{fmt.Sprintf(format, args...), moment} }

// Reconcile takes the next step for the restore of a name.
func (r *Reconciler) Reconcile(ctx context.Context, req ctrl.Request) (ctrl.Result, error) {
	rs := new(api.VirtualMachineRestore)
	if err := r.client.Get(ctx, req.NamespacedName, rs); err != nil {
		return ctrl.Result{}, client.IgnoreNotFound(err)
	}
	result, err := r.reconcile(ctx, rs)
	if apierrors.IsConflict(err) { // another reconciler has written the VM
		return ctrl.Result{RequeueAfter: conflictWait}, nil
	}
	return result, err
}

func (r *Reconciler) reconcile(ctx context.Context, rs *api.VirtualMachineRestore) (ctrl.Result, error) {
	w := &work{rs: rs, was: rs.DeepCopy()}
	if rs.Status == nil {
		rs.Status = new(api.VirtualMachineRestoreStatus)
	}
	if err := r.look(ctx, w); err != nil {
		return ctrl.Result{}, err
	}
	if rs.DeletionTimestamp != nil {
		var wait *waitError
		if err := r.remove(ctx, w); !asWait(err, &wait) {
			return ctrl.Result{}, err
		}
		return ctrl.Result{RequeueAfter: wait.again}, nil
	}
	if ended(w.was) {
		return ctrl.Result{}, r.unlock(ctx, w)
	}
	if err := r.adopt(ctx, w, false); err != nil {
		return ctrl.Result{}, err
	}
	if w.vmi != nil && !w.restored() {
		return r.unready(ctx, w)
	}
	err := r.restore(ctx, w)
	var wait *waitError
	switch {
	case err == nil:
		return ctrl.Result{}, nil
	case apierrors.IsConflict(err):
		return ctrl.Result{}, err
	case asWait(err, &wait):
		return ctrl.Result{RequeueAfter: wait.again}, r.statuses.report(ctx, w, corev1.ConditionTrue, wait.reason)
	}
	if !says(w.was, err.Error()) {
		r.events.Eventf(w.rs, nil, corev1.EventTypeWarning, "VirtualMachineRestoreError", "Restore", "VirtualMachineRestore encountered error %s", err)
	}
	if failure := r.statuses.report(ctx, w, corev1.ConditionFalse, err.Error()); failure != nil {
		return ctrl.Result{}, failure
	}
	return ctrl.Result{}, err
}

func (r *Reconciler) look(ctx context.Context, w *work) error {
	key := client.ObjectKey{Namespace: w.rs.Namespace, Name: w.rs.Spec.Target.Name}
	vm, vmi := new(kubevirt.VirtualMachine), new(kubevirt.VirtualMachineInstance)
	if err := r.client.Get(ctx, key, vm); err == nil {
		w.vm = vm
	} else if !apierrors.IsNotFound(err) {
		return fmt.Errorf("read VM %s: %w", key, err)
	}
	if err := r.client.Get(ctx, key, vmi); err == nil {
		w.vmi = vmi
	} else if !apierrors.IsNotFound(err) {
		return fmt.Errorf("read VMI %s: %w", key, err)
	}
	return nil
}

// adopt adds the finalizer, and makes the target the owner of its restore, if the target is the VM that is restored: a
// restore that is refused because its target is another VM must not end with it.
func (r *Reconciler) adopt(ctx context.Context, w *work, target bool) error {
	controllerutil.AddFinalizer(w.rs, finalizer)
	if target && w.vm != nil && len(w.rs.OwnerReferences) == 0 {
		w.rs.OwnerReferences = []metav1.OwnerReference{ownedBy(w.vm)}
	}
	if equality.Semantic.DeepEqual(w.was.ObjectMeta, w.rs.ObjectMeta) {
		return nil
	}
	p := client.MergeFromWithOptions(w.was, client.MergeFromWithOptimisticLock{})
	status := w.rs.Status
	if err := r.client.Patch(ctx, w.rs, p); err != nil {
		return fmt.Errorf("write restore %s/%s: %w", w.rs.Namespace, w.rs.Name, err)
	}
	w.was, w.rs.Status = w.rs.DeepCopy(), status
	return nil
}

func ownedBy(vm *kubevirt.VirtualMachine) metav1.OwnerReference {
	return *metav1.NewControllerRef(vm, kubevirt.VirtualMachineGroupVersionKind)
}

// restore takes all steps that are possible now.
func (r *Reconciler) restore(ctx context.Context, w *work) error {
	if !w.restored() {
		if err := r.restoreSpec(ctx, w); err != nil {
			return err
		}
	}
	if err := r.adopt(ctx, w, true); err != nil { // the target may be new
		return err
	}
	if err := r.owners.own(ctx, w); err != nil {
		return err
	}
	if err := r.owners.deleteObsolete(ctx, w); err != nil {
		return err
	}
	if err := r.unlock(ctx, w); err != nil {
		return err
	}
	now, yes := metav1.NewTime(r.now()), true
	w.rs.Status.Complete, w.rs.Status.RestoreTime = &yes, &now
	if err := r.statuses.report(ctx, w, corev1.ConditionFalse, "Operation complete"); err != nil {
		return err
	}
	r.events.Eventf(w.rs, w.vm, corev1.EventTypeNormal, "VirtualMachineRestoreComplete", "Restore",
		"Successfully completed VirtualMachineRestore %s", w.rs.Name)
	return nil
}

// restoreSpec creates the PVCs, and replaces the target's spec.
func (r *Reconciler) restoreSpec(ctx context.Context, w *work) error {
	snapshot, content, err := r.source(ctx, w)
	if err != nil {
		return err
	}
	if w.vm != nil && (snapshot.Status.SourceUID == nil || w.vm.UID != *snapshot.Status.SourceUID) {
		return fmt.Errorf("restore source and restore target are different but restore target already exists")
	}
	if err := r.adopt(ctx, w, true); err != nil {
		return err
	}
	if err := r.lock(ctx, w); err != nil {
		return err
	}
	if err := r.volumes.plan(ctx, w, content); err != nil {
		return err
	}
	if err := r.volumes.createPVCs(ctx, w, content); err != nil {
		return err
	}
	return r.targets.writeVM(ctx, w, content)
}

// source returns a snapshot that can be used, with its content.
func (r *Reconciler) source(ctx context.Context, w *work) (*api.VirtualMachineSnapshot, *api.VirtualMachineSnapshotContent, error) {
	key := client.ObjectKey{Namespace: w.rs.Namespace, Name: w.rs.Spec.VirtualMachineSnapshotName}
	s := new(api.VirtualMachineSnapshot)
	err := r.client.Get(ctx, key, s)
	switch {
	case apierrors.IsNotFound(err):
		return nil, nil, fmt.Errorf("VMSnapshot %s does not exist", key)
	case err != nil:
		return nil, nil, fmt.Errorf("read snapshot %s: %w", key, err)
	case s.Status != nil && s.Status.Phase == api.Failed:
		return nil, nil, fmt.Errorf("VMSnapshot %s failed and is invalid to use", key)
	case s.Status == nil || s.Status.ReadyToUse == nil || !*s.Status.ReadyToUse || s.Status.VirtualMachineSnapshotContentName == nil:
		return nil, nil, waitFor("VMSnapshot %s not ready", key)
	}
	key.Name = *s.Status.VirtualMachineSnapshotContentName
	content := new(api.VirtualMachineSnapshotContent)
	if err := r.client.Get(ctx, key, content); err != nil {
		return nil, nil, fmt.Errorf("read snapshot content %s: %w", key, err)
	}
	if vm := content.Spec.Source.VirtualMachine; vm == nil || vm.Spec.Template == nil {
		return nil, nil, fmt.Errorf("snapshot content %s has no VM", key)
	}
	return s, content, nil
}

// lock keeps the target from starting.
func (r *Reconciler) lock(ctx context.Context, w *work) error {
	if w.vm == nil {
		return nil
	}
	switch in := w.vm.Status.RestoreInProgress; {
	case w.vm.DeletionTimestamp != nil:
		return fmt.Errorf("VM %s is being deleted", w.vm.Name)
	case w.vm.Status.SnapshotInProgress != nil:
		return waitFor("vm snapshot %s in progress", *w.vm.Status.SnapshotInProgress)
	case in != nil && *in != w.rs.Name:
		return waitFor("vm restore %s in progress", *in)
	case in != nil:
		return nil
	}
	before := w.vm.DeepCopy()
	w.vm.Status.RestoreInProgress = &w.rs.Name
	p := client.MergeFromWithOptions(before, client.MergeFromWithOptimisticLock{})
	if err := r.client.Status().Patch(ctx, w.vm, p); err != nil {
		return fmt.Errorf("lock VM %s: %w", w.vm.Name, err)
	}
	// The VM's controller may have started it just before it saw the lock.
	vmi := new(kubevirt.VirtualMachineInstance)
	if err := r.live.Get(ctx, client.ObjectKeyFromObject(w.vm), vmi); !apierrors.IsNotFound(err) {
		return waitFor("Waiting for target to be ready")
	}
	return nil
}

// unlock lets the target start.
func (r *Reconciler) unlock(ctx context.Context, w *work) error {
	if w.vm == nil || w.vm.Status.RestoreInProgress == nil || *w.vm.Status.RestoreInProgress != w.rs.Name {
		return nil
	}
	before := w.vm.DeepCopy()
	w.vm.Status.RestoreInProgress = nil
	p := client.MergeFromWithOptions(before, client.MergeFromWithOptimisticLock{})
	if err := r.client.Status().Patch(ctx, w.vm, p); err != nil {
		return client.IgnoreNotFound(fmt.Errorf("unlock VM %s: %w", w.vm.Name, err))
	}
	return nil
}

// remove ends a restore that is being deleted.
func (r *Reconciler) remove(ctx context.Context, w *work) error {
	if !controllerutil.ContainsFinalizer(w.rs, finalizer) {
		return nil
	}
	// The VM does not start while a disk of its goes from one PVC to another.
	if err := r.volumes.discard(ctx, w); err != nil {
		return err
	}
	if err := r.unlock(ctx, w); err != nil {
		return err
	}
	before := w.rs.DeepCopy()
	controllerutil.RemoveFinalizer(w.rs, finalizer)
	p := client.MergeFromWithOptions(before, client.MergeFromWithOptimisticLock{})
	if err := r.client.Patch(ctx, w.rs, p); err != nil {
		return client.IgnoreNotFound(fmt.Errorf("remove finalizer from restore %s/%s: %w", w.rs.Namespace, w.rs.Name, err))
	}
	return nil
}
