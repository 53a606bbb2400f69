package vm

import (
	"context"
	"errors"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/events"
	kubevirt "kubevirt.io/api/core/v1"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"

	"github.com/nodevirt/nodevirt/controller/config"
	"github.com/nodevirt/nodevirt/controller/memory"
	instances "github.com/nodevirt/nodevirt/controller/vmi"
)

// Options are what the VirtualMachines' reconciler works with.
type Options struct {
	// Client reads from the cache and must wait there for its own writes.
	Client client.Client
	// Live reads from the API server.
	Live client.Reader
	// Revisions creates ControllerRevisions, which no cache has.
	Revisions client.Writer
	// DataVolumes reads and creates CDI's objects.
	DataVolumes DataVolumes
	// Snapshots lists the classes of PVCs' snapshots.
	Snapshots SnapshotClasses
	// Config is the cluster's configuration.
	Config config.Source
	// Memory saves the memory of guests that are suspended.
	Memory *memory.Saves
	// Events reach the users of VirtualMachines.
	Events events.EventRecorder
	// Now is the time; a test may have its own.
	Now func() time.Time
}

// Reconciler starts and stops VirtualMachines as their specs request.
type Reconciler struct {
	client      client.Client
	live        client.Reader
	revisions   client.Writer
	dataVolumes DataVolumes
	config      config.Source
	events      events.EventRecorder
	now         func() time.Time
	expander    *expander
	dumps       *dumps
	cards       *cards
	suspends    *suspends
	moves       *volumeMigrations
	releases    *releases
	volumes     interface {
		statuses(ctx context.Context, vm *kubevirt.VirtualMachine) (all []kubevirt.VolumeSnapshotStatus, classless bool, err error)
	}
}

// NewReconciler makes the parts of a reconciler, and joins them.
func NewReconciler(o Options) *Reconciler {
	return &Reconciler{
		client: o.Client, live: o.Live, revisions: o.Revisions, dataVolumes: o.DataVolumes, config: o.Config, events: o.Events, now: o.Now,
		expander: &expander{client: o.Client, live: o.Live, revisions: o.Revisions},
		dumps:    &dumps{client: o.Client, live: o.Live},
		cards:    &cards{client: o.Client},
		suspends: &suspends{client: o.Client, live: o.Live, saves: o.Memory, events: o.Events},
		moves:    &volumeMigrations{client: o.Client, dataVolumes: o.DataVolumes, events: o.Events},
		releases: &releases{client: o.Client, dataVolumes: o.DataVolumes, events: o.Events},
		volumes:  &snapshottables{client: o.Client, live: o.Live, snapshots: o.Snapshots, now: o.Now},
	}
}

// Reconcile takes the next step for the VirtualMachine of a name.
func (r *Reconciler) Reconcile(ctx context.Context, req ctrl.Request) (ctrl.Result, error) {
	vm := new(kubevirt.VirtualMachine)
	if err := r.client.Get(ctx, req.NamespacedName, vm); err != nil {
		return ctrl.Result{}, client.IgnoreNotFound(err)
	}
	vmi := new(kubevirt.VirtualMachineInstance)
	if err := r.client.Get(ctx, req.NamespacedName, vmi); apierrors.IsNotFound(err) {
		vmi = nil
	} else if err != nil {
		return ctrl.Result{}, fmt.Errorf("read VMI %s: %w", req, err)
	}
	if vm.DeletionTimestamp != nil {
		if vmi != nil && !metav1.IsControlledBy(vmi, vm) {
			vmi = nil // another owner's, or released: it continues without the VM
		}
		return ctrl.Result{}, r.remove(ctx, vm, vmi)
	}
	if vmi != nil {
		foreign, err := r.adopt(ctx, vm, vmi)
		if err != nil {
			return ctrl.Result{}, err
		}
		if foreign != nil {
			return ctrl.Result{}, r.report(ctx, vm, outcome{failure: foreign})
		}
	}
	if err := r.keep(ctx, vm); err != nil {
		return ctrl.Result{}, err
	}
	if err := r.storeUUID(ctx, vm, vmi); err != nil {
		return ctrl.Result{}, err
	}
	if err := resumed(ctx, r.client, vm, vmi); err != nil {
		return ctrl.Result{}, err
	}
	if err := r.releases.take(ctx, vm); err != nil {
		return ctrl.Result{}, err
	}
	if vmi != nil && vmi.IsFinal() && vmi.Status.Reason == instances.ReasonSuspended {
		if err := r.suspends.note(ctx, vm, vmi); err != nil {
			return ctrl.Result{}, err
		}
		return ctrl.Result{}, r.stop(ctx, vm, vmi)
	}
	return r.run(ctx, vm, vmi)
}

// run starts or stops the VM, and reports the result.
func (r *Reconciler) run(
	ctx context.Context, vm *kubevirt.VirtualMachine, vmi *kubevirt.VirtualMachineInstance,
) (ctrl.Result, error) {
	c, err := r.config.Read(ctx)
	if err != nil {
		return ctrl.Result{}, err
	}
	strategy, err := vm.RunStrategy()
	if err != nil {
		return ctrl.Result{}, r.report(ctx, vm, outcome{vmi: vmi, failure: err})
	}
	if strategy == kubevirt.RunStrategyHalted && vmi == nil && startsPaused(vm) {
		return ctrl.Result{}, r.unhalt(ctx, vm) // the VM's event triggers the start
	}
	now := r.now()
	o := outcome{vmi: vmi, strategy: strategy, staged: c.Staged(), startFailure: failureUnder(strategy, vm.Status.StartFailure, vmi, now)}
	o.failure = errors.Join(r.keepTypes(ctx, vm, vmi, c.ReferencePolicy()), r.createDataVolumes(ctx, vm, vmi != nil || wantsStart(vm, strategy)))
	o.unmoved, o.moving, err = r.moves.follow(ctx, vm, vmi, o.staged, func(vmi *kubevirt.VirtualMachineInstance) (*kubevirt.VirtualMachineInstanceTemplateSpec, error) {
		return r.templateOf(ctx, vm, vmi)
	})
	if err != nil {
		return ctrl.Result{}, err
	}
	var refused []migratedVolume // a plugged one would be exchanged, and not copied
	if o.unmoved != "" {
		refused = r.moves.asked(vm, vmi)
	}
	if err := r.plug(ctx, vm, vmi, refused); apierrors.IsConflict(err) {
		return ctrl.Result{}, err // the cache was behind
	} else if err != nil {
		o.failure = errors.Join(o.failure, err)
	}
	if err := r.cards.follow(ctx, vm, vmi, c.Staged()); apierrors.IsConflict(err) {
		return ctrl.Result{}, err
	} else if err != nil {
		o.failure = errors.Join(o.failure, err)
	}
	if err := r.dumps.follow(ctx, vm, vmi); apierrors.IsConflict(err) {
		return ctrl.Result{}, err
	} else if err != nil {
		o.failure = errors.Join(o.failure, err)
	}
	if o.suspending, err = r.suspends.follow(ctx, vm, vmi, strategy); apierrors.IsConflict(err) {
		return ctrl.Result{}, err
	} else if err != nil {
		o.failure = errors.Join(o.failure, err)
	}
	considered := *vm
	considered.Status.StartFailure = o.startFailure
	o.decision = decide(&considered, strategy, vmi, now)
	o.wanted = wantsStart(&considered, strategy)
	if vm.Status.RestoreInProgress != nil { // its disks are not the guest's yet
		o.decision.start = false
	}
	if o.unrecovered = unrecovered(vm, vmi); len(o.unrecovered) > 0 { // which PVCs have the data?
		o.decision.start = false
	}
	if o.wanted || vmi != nil && vmi.Status.Phase != kubevirt.Running {
		if o.unbound, err = r.unbound(ctx, vm); err != nil {
			return ctrl.Result{}, err
		}
	}
	if o.vanishing, err = r.vanishing(ctx, vmi); err != nil {
		return ctrl.Result{}, err
	}
	var unknown error // which volumes snapshots have; the VM starts all the same
	o.snapshots, o.lacksClass, unknown = r.volumes.statuses(ctx, vm)
	switch {
	case o.decision.stop:
		// The status records what must outlast the instance before it is deleted.
		if err := r.report(ctx, vm, o); err != nil {
			return ctrl.Result{}, err
		}
		return ctrl.Result{}, r.stop(ctx, vm, vmi)
	case o.decision.start && o.failure == nil:
		if o.vmi, o.failure = r.start(ctx, vm, c); unknown == nil && o.reportLater(vm) {
			return ctrl.Result{}, nil // the instance's event triggers the report
		}
	default:
		if o.failure == nil {
			o.template, o.failure = r.templateOf(ctx, vm, vmi)
		}
		if !o.staged {
			if err := r.resize(ctx, vm, o.template, vmi); err != nil {
				return ctrl.Result{}, err
			}
		}
		if err := errors.Join(r.raiseGeneration(ctx, vm, vmi), passSkip(ctx, r.client, vm, vmi)); err != nil {
			return ctrl.Result{}, err
		}
	}
	err = errors.Join(r.report(ctx, vm, o), unknown)
	if o.suspending == 0 && !changes(o.failure) {
		err = errors.Join(err, o.failure)
	}
	return ctrl.Result{RequeueAfter: o.again(now)}, err
}

// unhalt changes the strategy of a halted VM that a user has requested to start
// paused: the request alone says how to start it.
func (r *Reconciler) unhalt(ctx context.Context, vm *kubevirt.VirtualMachine) error {
	before := vm.DeepCopy()
	if vm.Spec.Running != nil {
		running := true
		vm.Spec.Running = &running
	} else {
		always := kubevirt.RunStrategyAlways
		vm.Spec.RunStrategy = &always
	}
	patch := client.MergeFromWithOptions(before, client.MergeFromWithOptimisticLock{})
	if err := r.client.Patch(ctx, vm, patch); err != nil {
		return client.IgnoreNotFound(fmt.Errorf("start VM %s/%s: %w", vm.Namespace, vm.Name, err))
	}
	return nil
}

func (r *Reconciler) start(ctx context.Context, vm *kubevirt.VirtualMachine, c config.Config) (*kubevirt.VirtualMachineInstance, error) {
	template, err := r.template(ctx, vm)
	if err != nil {
		return nil, err
	}
	vmi, err := instance(vm, template)
	if err != nil {
		return nil, err
	}
	addRoom(c, &vmi.Spec)
	if err := r.keepRevision(ctx, vm); err != nil {
		return nil, err
	}
	if err := r.client.Create(ctx, vmi); err != nil {
		return nil, fmt.Errorf("create VMI %s: %w", vmi.Name, err)
	}
	r.events.Eventf(vm, vmi, corev1.EventTypeNormal, "SuccessfulCreate", "Start",
		"Started the virtual machine by creating the new virtual machine instance %s", vmi.Name)
	return vmi, nil
}

// stop deletes this instance, and no later one of its name.
func (r *Reconciler) stop(ctx context.Context, vm *kubevirt.VirtualMachine, vmi *kubevirt.VirtualMachineInstance) error {
	return r.deleteIf(ctx, vm, vmi, client.Preconditions{UID: &vmi.UID})
}

// deleteIf deletes an instance that meets the conditions.
func (r *Reconciler) deleteIf(
	ctx context.Context, vm *kubevirt.VirtualMachine, vmi *kubevirt.VirtualMachineInstance, conditions client.Preconditions,
) error {
	if vmi.DeletionTimestamp != nil {
		return nil
	}
	err := r.client.Delete(ctx, vmi, conditions)
	if apierrors.IsNotFound(err) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("delete VMI %s: %w", vmi.Name, err)
	}
	r.events.Eventf(vm, vmi, corev1.EventTypeNormal, "SuccessfulDelete", "Stop",
		"Stopped the virtual machine by deleting the virtual machine instance %s with UID %s", vmi.Name, vmi.UID)
	return nil
}

// adopt makes the VirtualMachine the owner of an instance of its name that has no
// owner. If it cannot, foreign says why.
func (r *Reconciler) adopt(
	ctx context.Context, vm *kubevirt.VirtualMachine, vmi *kubevirt.VirtualMachineInstance,
) (foreign, err error) {
	owner := metav1.GetControllerOf(vmi)
	switch {
	case owner != nil && owner.UID == vm.UID:
		return nil, nil
	case owner != nil:
		return fmt.Errorf("VMI %s belongs to %s %s", vmi.Name, owner.Kind, owner.Name), nil
	case vmi.DeletionTimestamp != nil:
		return fmt.Errorf("VMI %s, which has no owner, is being deleted", vmi.Name), nil
	}
	live := new(kubevirt.VirtualMachine) // the cache may be behind
	if err := r.live.Get(ctx, client.ObjectKeyFromObject(vm), live); err != nil {
		return nil, fmt.Errorf("read VM %s: %w", vm.Name, err)
	}
	if live.UID != vm.UID || live.DeletionTimestamp != nil {
		return fmt.Errorf("VMI %s has no owner, and VM %s is being deleted", vmi.Name, vm.Name), nil
	}
	before := vmi.DeepCopy()
	vmi.OwnerReferences = append(vmi.OwnerReferences, *metav1.NewControllerRef(vm, kubevirt.VirtualMachineGroupVersionKind))
	patch := client.MergeFromWithOptions(before, client.MergeFromWithOptimisticLock{})
	if err := r.client.Patch(ctx, vmi, patch); err != nil {
		return nil, fmt.Errorf("adopt VMI %s: %w", vmi.Name, err)
	}
	return nil, nil
}

// keep adds the finalizer, so that the VirtualMachine stays until its instance is
// gone.
func (r *Reconciler) keep(ctx context.Context, vm *kubevirt.VirtualMachine) error {
	if controllerutil.ContainsFinalizer(vm, kubevirt.VirtualMachineControllerFinalizer) {
		return nil
	}
	before := vm.DeepCopy()
	controllerutil.AddFinalizer(vm, kubevirt.VirtualMachineControllerFinalizer)
	patch := client.MergeFromWithOptions(before, client.MergeFromWithOptimisticLock{})
	if err := r.client.Patch(ctx, vm, patch); err != nil {
		return fmt.Errorf("add finalizer to VM %s: %w", vm.Name, err)
	}
	return nil
}

// remove deletes the instance of a deleted VirtualMachine, unless it should be
// orphaned, and then lets the VirtualMachine go.
func (r *Reconciler) remove(ctx context.Context, vm *kubevirt.VirtualMachine, vmi *kubevirt.VirtualMachineInstance) error {
	// At once: if the deletion is in the foreground, Kubernetes deletes what the VirtualMachine owns while it still exists.
	if err := r.releases.spare(ctx, vm); err != nil {
		return err
	}
	orphan := controllerutil.ContainsFinalizer(vm, metav1.FinalizerOrphanDependents)
	if vmi != nil && !orphan {
		// Not an instance that Kubernetes has orphaned, for which the finalizer has gone, and which the cache has as it was.
		now := client.Preconditions{UID: &vmi.UID, ResourceVersion: &vmi.ResourceVersion}
		if err := r.deleteIf(ctx, vm, vmi, now); err != nil {
			return err
		}
		return r.report(ctx, vm, outcome{vmi: vmi})
	}
	if vmi == nil { // the next step cannot be undone, and the cache may be behind
		live := new(kubevirt.VirtualMachineInstance)
		err := r.live.Get(ctx, client.ObjectKeyFromObject(vm), live)
		if err == nil && metav1.IsControlledBy(live, vm) {
			return fmt.Errorf("VMI %s is not in the cache yet", vm.Name)
		}
		if err != nil && !apierrors.IsNotFound(err) {
			return fmt.Errorf("read VMI %s: %w", vm.Name, err)
		}
	}
	if !controllerutil.ContainsFinalizer(vm, kubevirt.VirtualMachineControllerFinalizer) {
		return nil
	}
	if err := r.releases.spare(ctx, vm); err != nil {
		return err
	}
	before := vm.DeepCopy()
	controllerutil.RemoveFinalizer(vm, kubevirt.VirtualMachineControllerFinalizer)
	patch := client.MergeFromWithOptions(before, client.MergeFromWithOptimisticLock{})
	if err := r.client.Patch(ctx, vm, patch); err != nil {
		return client.IgnoreNotFound(fmt.Errorf("remove finalizer from VM %s: %w", vm.Name, err))
	}
	return nil
}
