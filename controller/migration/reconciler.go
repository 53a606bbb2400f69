package migration

import (
	"context"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/events"
	kubevirt "kubevirt.io/api/core/v1"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"

	"github.com/nodevirt/nodevirt/controller/config"
	"github.com/nodevirt/nodevirt/controller/pod"
	instances "github.com/nodevirt/nodevirt/controller/vmi"
)

type (
	migration = kubevirt.VirtualMachineInstanceMigration
	instance  = kubevirt.VirtualMachineInstance
	state     = kubevirt.VirtualMachineInstanceMigrationState
)

// pods makes and reads the pods of instances; [instances.Pods].
type pods interface {
	MoveState(ctx context.Context, vmi *instance) (string, error)
	MissingNetwork(ctx context.Context, vmi *instance) (string, error)
	KeepAddresses(ctx context.Context, vmi *instance, target, source *corev1.Pod) error
	Manifest(ctx context.Context, vmi *instance, state string) (*corev1.Pod, error)
	PodOf(ctx context.Context, vmi *instance, name string) (*corev1.Pod, error)
	StateOf(ctx context.Context, p *corev1.Pod) (instances.State, error)
	UserOf(ctx context.Context, vmi *instance) (string, error)
	SettleState(ctx context.Context, vmi client.ObjectKey, migration types.UID, moved bool) error
}

// nodes gives an order to the VM in a pod; [control.Client].
type nodes interface {
	Control(ctx context.Context, p *corev1.Pod, most int, name string, arguments ...string) ([]byte, error)
}

// volumes has a target's node mount the volumes that an instance's VM has got; [hotplug.Moves].
type volumes interface {
	Attach(ctx context.Context, vmi *instance, source, target *corev1.Pod, named ...string) (containers map[string]string, waits string, err error)
}

// Options are what the migrations' reconciler works with.
type Options struct {
	// Client reads from the cache and must wait there for its own writes.
	Client client.Client
	// Live reads from the API server.
	Live client.Reader
	// Events reach the users of migrations and instances.
	Events events.EventRecorder
	// Pods makes and reads the pods of instances.
	Pods pods
	// Volumes are those that instances have got since they run.
	Volumes volumes
	// Config is the cluster's configuration.
	Config config.Source
	// Nodes reaches the nodes of pods.
	Nodes nodes
	// Now is the time; a test may have its own.
	Now func() time.Time
}

// Reconciler takes migrations from phase to phase.
//
//	Pending ─▶ Scheduling ─▶ Scheduled ─▶ PreparingTarget ─▶ TargetReady ─▶ Running ─▶ Succeeded
//	(a place)  (target pod)  (it runs)    (orders)           (Send)         (reports)
//	   └───────────┴─────────────┴────────────┴──────────────────┴─────────────┴─────▶ Failed
type Reconciler struct {
	client   client.Client
	live     client.Reader
	events   events.EventRecorder
	pods     pods
	volumes  volumes
	config   config.Source
	now      func() time.Time
	orders   *orders
	statuses *statuses
	outcomes *outcomes
	follower *follower
	asked    *asked

	places places
}

// NewReconciler makes the parts of a reconciler, and joins them.
func NewReconciler(o Options) *Reconciler {
	orders := &orders{nodes: o.Nodes}
	statuses := &statuses{client: o.Client, now: o.Now}
	outcomes := &outcomes{client: o.Client, events: o.Events, now: o.Now, pods: o.Pods, statuses: statuses}
	return &Reconciler{
		client: o.Client, live: o.Live, events: o.Events, pods: o.Pods, volumes: o.Volumes, config: o.Config, now: o.Now,
		orders: orders, statuses: statuses, outcomes: outcomes, asked: newAsked(),
		follower: &follower{events: o.Events, now: o.Now, orders: orders, statuses: statuses, outcomes: outcomes},
	}
}

// Reconcile takes the next step for the migration of a name.
func (r *Reconciler) Reconcile(ctx context.Context, req ctrl.Request) (ctrl.Result, error) {
	result, err := r.reconcile(ctx, req)
	if apierrors.IsConflict(err) { // the instance's reconciler has written its status
		return ctrl.Result{RequeueAfter: conflictWait}, nil
	}
	return result, err
}

// conflictWait is about how long the cache takes to have another reconciler's write.
const conflictWait = 50 * time.Millisecond

func (r *Reconciler) reconcile(ctx context.Context, req ctrl.Request) (ctrl.Result, error) {
	m := new(migration)
	if err := r.client.Get(ctx, req.NamespacedName, m); err != nil {
		r.asked.forget(req.NamespacedName)
		return ctrl.Result{}, client.IgnoreNotFound(err)
	}
	if m.IsFinal() {
		r.asked.forget(req.NamespacedName)
		return ctrl.Result{}, r.outcomes.leave(ctx, m)
	}
	vmi, err := r.instanceOf(ctx, m)
	if err != nil {
		return ctrl.Result{}, err
	}
	if m.Status.Phase == kubevirt.MigrationPhaseUnset {
		if err := r.adopt(ctx, m); err != nil {
			return ctrl.Result{}, err
		}
	}
	if vmi == nil {
		return ctrl.Result{}, r.outcomes.fail(ctx, m, nil, "Migration failed because vmi does not exist.")
	}
	if s := vmi.Status.MigrationState; mine(m, vmi) && s.EndTimestamp != nil {
		return ctrl.Result{}, r.outcomes.conclude(ctx, m, vmi) // it ended before it could say so
	}
	if vmi.DeletionTimestamp != nil || vmi.IsFinal() { // the instance ends all its pods
		return r.abandon(ctx, m, vmi)
	}
	if isPending(m) {
		return r.wait(ctx, m, vmi)
	}
	return r.proceed(ctx, m, vmi)
}

// abandon ends a migration whose instance ends. If its persistent state moves, it waits for the pods to say which had
// the guest last.
func (r *Reconciler) abandon(ctx context.Context, m *migration, vmi *instance) (ctrl.Result, error) {
	if mine(m, vmi) {
		w, err := r.look(ctx, m, vmi)
		if err != nil {
			return ctrl.Result{}, err
		}
		if to := pod.StateOf(w.target); to != "" && to != pod.StateOf(w.source) {
			if !w.sourceState.Ended || !w.targetState.Ended {
				return ctrl.Result{RequeueAfter: waitAgain}, nil
			}
			if w.sourceState.Migrated || w.targetState.Had {
				if err := r.outcomes.settleState(ctx, m, true); err != nil {
					return ctrl.Result{}, err
				}
			}
		}
	}
	return ctrl.Result{}, r.outcomes.fail(ctx, m, vmi, "Migration failed vmi shutdown during migration.")
}

// proceed takes the next step for a migration that has begun.
func (r *Reconciler) proceed(ctx context.Context, m *migration, vmi *instance) (ctrl.Result, error) {
	if !mine(m, vmi) {
		if why := foreign(m, vmi); why != "" {
			return r.failUnlessStale(ctx, m, vmi, why)
		}
		// The API server refuses this if the cache is behind.
		if err := r.statuses.begin(ctx, m, vmi); err != nil {
			return ctrl.Result{}, err
		}
	}
	w, err := r.look(ctx, m, vmi)
	if err != nil {
		return ctrl.Result{}, err
	}
	if unsent(m) && w.target != nil && w.targetState.Lost {
		return ctrl.Result{}, r.outcomes.stay(ctx, w, fmt.Sprintf("Migration failed because node %s, the target, does not report.", w.target.Spec.NodeName))
	}
	switch m.Status.Phase {
	case kubevirt.MigrationScheduling:
		return r.schedule(ctx, w)
	case kubevirt.MigrationScheduled, kubevirt.MigrationPreparingTarget, kubevirt.MigrationTargetReady:
		return r.prepare(ctx, w, func() {})
	}
	if wait := r.asked.wait(w, r.now(), r.follower.nextPoll(w)); wait > 0 {
		return ctrl.Result{RequeueAfter: wait}, nil
	}
	return r.follower.follow(ctx, w)
}

// unsent reports whether the source was not ordered to send its guest yet.
func unsent(m *migration) bool {
	switch m.Status.Phase {
	case kubevirt.MigrationScheduling, kubevirt.MigrationScheduled, kubevirt.MigrationPreparingTarget:
		return true
	}
	return false
}

// foreign returns why a migration can't have an instance whose state is not the migration's; empty if it can.
func foreign(m *migration, vmi *instance) string {
	if s := vmi.Status.MigrationState; s != nil && s.EndTimestamp == nil && s.MigrationUID != "" {
		return fmt.Sprintf("VMI is not eligible for migration because another migration job "+
			"is in progress: the one with UID %s; if its object was removed, delete the VMI or restart its VM", s.MigrationUID)
	}
	if m.Status.Phase != kubevirt.MigrationScheduling {
		return "VMI's migration state was taken over by another migration job during active migration."
	}
	return ""
}

// failUnlessStale fails a migration for what an instance's status says, unless the cache is behind.
func (r *Reconciler) failUnlessStale(ctx context.Context, m *migration, vmi *instance, why string) (ctrl.Result, error) {
	current := new(instance)
	if err := r.live.Get(ctx, client.ObjectKeyFromObject(vmi), current); err != nil {
		return ctrl.Result{}, fmt.Errorf("read VMI %s/%s: %w", vmi.Namespace, vmi.Name, err)
	}
	if current.ResourceVersion != vmi.ResourceVersion {
		return ctrl.Result{RequeueAfter: conflictWait}, nil
	}
	return ctrl.Result{}, r.outcomes.fail(ctx, m, nil, why)
}

// work is a migration that has begun, with what the cluster knows of both ends.
type work struct {
	m   *migration
	vmi *instance
	// The pods are nil if they are gone.
	source, target           *corev1.Pod
	sourceState, targetState instances.State
}

func (r *Reconciler) look(ctx context.Context, m *migration, vmi *instance) (w work, err error) {
	w = work{m: m, vmi: vmi}
	s := vmi.Status.MigrationState
	if w.source, err = r.pods.PodOf(ctx, vmi, s.SourcePod); err != nil {
		return w, err
	}
	if w.target, err = r.pods.PodOf(ctx, vmi, s.TargetPod); err != nil {
		return w, err
	}
	if w.sourceState, err = r.pods.StateOf(ctx, w.source); err != nil {
		return w, err
	}
	w.targetState, err = r.pods.StateOf(ctx, w.target)
	return w, err
}

// instanceOf returns the migration's instance; nil if there is none.
func (r *Reconciler) instanceOf(ctx context.Context, m *migration) (*instance, error) {
	key := client.ObjectKey{Namespace: m.Namespace, Name: m.Spec.VMIName}
	vmi := new(instance)
	err := r.client.Get(ctx, key, vmi)
	if apierrors.IsNotFound(err) {
		err = r.live.Get(ctx, key, vmi)
	}
	if apierrors.IsNotFound(err) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("read VMI %s: %w", key, err)
	}
	return vmi, nil
}

// adopt sets the finalizer and the label that admission sets.
func (r *Reconciler) adopt(ctx context.Context, m *migration) error {
	before := m.DeepCopy()
	if m.DeletionTimestamp == nil {
		controllerutil.AddFinalizer(m, kubevirt.VirtualMachineInstanceMigrationFinalizer)
	}
	if name := m.Spec.VMIName; len(name) <= maxLabel && m.Labels[kubevirt.MigrationSelectorLabel] != name {
		if m.Labels == nil {
			m.Labels = map[string]string{}
		}
		m.Labels[kubevirt.MigrationSelectorLabel] = name
	}
	if len(m.Finalizers) == len(before.Finalizers) && len(m.Labels) == len(before.Labels) {
		return nil
	}
	patch := client.MergeFromWithOptions(before, client.MergeFromWithOptimisticLock{})
	if err := r.client.Patch(ctx, m, patch); err != nil {
		return fmt.Errorf("add finalizer to migration %s/%s: %w", m.Namespace, m.Name, err)
	}
	return nil
}

// mine reports whether the instance's migration state is of a migration.
func mine(m *migration, vmi *instance) bool {
	s := vmi.Status.MigrationState
	return s != nil && s.MigrationUID == m.UID
}

func isPending(m *migration) bool {
	return m.Status.Phase == kubevirt.MigrationPhaseUnset || m.Status.Phase == kubevirt.MigrationPending
}

// cancelled reports whether a user has deleted the migration, which is how to cancel it.
func cancelled(m *migration) bool { return m.DeletionTimestamp != nil }
