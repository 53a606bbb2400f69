package pool

import (
	"context"
	"errors"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/client-go/tools/events"
	api "kubevirt.io/api/pool/v1beta1"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/nodevirt/nodevirt/controller/replicas"
)

type vmPool = api.VirtualMachinePool

// Options are what the pools' reconciler works with.
type Options struct {
	// Client reads from the cache and must wait there for its own writes.
	Client client.Client
	// Live reads from the API server.
	Live client.Reader
	// Revisions creates and deletes ControllerRevisions, which no cache has.
	Revisions client.Writer
	// DataVolumes changes the owners of CDI's objects.
	DataVolumes DataVolumes
	// Events reach the users of pools.
	Events events.EventRecorder
	// Now is the time; a test may have its own.
	Now func() time.Time
}

// Reconciler brings one pool at a time nearer to its spec.
type Reconciler struct {
	client    client.Client
	live      client.Reader
	events    events.EventRecorder
	now       func() time.Time
	disks     *disks
	templates *revisions
	selection interface {
		selected(ctx context.Context, all []*member, policy *api.VirtualMachinePoolSelectionPolicy) ([]*member, error)
	}

	heals heals
}

// NewReconciler makes the parts of a reconciler, and joins them.
func NewReconciler(o Options) *Reconciler {
	return &Reconciler{
		client: o.Client, live: o.Live, events: o.Events, now: o.Now,
		disks:     &disks{client: o.Client, live: o.Live, dataVolumes: o.DataVolumes},
		templates: &revisions{live: o.Live, revisions: o.Revisions},
		selection: &selector{live: o.Live},
	}
}

// DataVolumes changes the owners of DataVolumes, as [datavolume.Client] does.
type DataVolumes interface {
	ChangeOwners(ctx context.Context, namespace, name string, change func([]metav1.OwnerReference) []metav1.OwnerReference) error
}

// work is one reconciliation of a pool.
type work struct {
	pool *vmPool
	now  time.Time
	// active are the VMs that count as replicas and stay, leaving those that are being
	// deleted.
	active, leaving []*member
	// made is the number of new VMs.
	made int
	// unused are names of revisions that a VM had before this reconciliation.
	unused []string
	// again is when to reconcile without an event; 0 for never.
	again    time.Duration
	selector labels.Selector // nil if it is not sound
	failure  *failure        // nil for none
}

// lookAfter reconciles again after a time, at the latest.
func (w *work) lookAfter(d time.Duration) {
	if w.again == 0 || d < w.again {
		w.again = d
	}
}

// failure is the reason why a pool is not as its spec requests.
type failure struct {
	reason string
	error
}

// Reconcile takes the next steps for the pool of a name.
func (r *Reconciler) Reconcile(ctx context.Context, req ctrl.Request) (ctrl.Result, error) {
	pool := new(vmPool)
	if err := r.client.Get(ctx, req.NamespacedName, pool); err != nil {
		r.heals.forget(req.NamespacedName)
		return ctrl.Result{}, client.IgnoreNotFound(err)
	}
	w := &work{pool: pool, now: r.now()}
	var err error
	if w.selector, err = selectorOf(pool); err != nil { // only an edit can change that
		w.failure = &failure{"FailedCreate", err}
		return ctrl.Result{}, r.report(ctx, w)
	}
	all, err := r.members(ctx, pool)
	if err != nil {
		return ctrl.Result{}, err
	}
	for _, m := range all {
		if m.vm.DeletionTimestamp == nil {
			w.active = append(w.active, m)
		} else {
			w.leaving = append(w.leaving, m)
		}
	}
	if !pool.Spec.Paused && pool.DeletionTimestamp == nil {
		err = r.advance(ctx, w)
	}
	if err = errors.Join(r.report(ctx, w), err); err != nil {
		return ctrl.Result{}, err
	}
	return ctrl.Result{RequeueAfter: w.again}, nil
}

// advance takes every step, although one before may have failed: a quota that refuses
// new VMs must not keep the others from being updated.
func (r *Reconciler) advance(ctx context.Context, w *work) error {
	var all []error
	for _, step := range []struct {
		reason string
		do     func(context.Context, *work) error
	}{
		{"FailedDelete", r.shrink},
		{"FailedCreate", r.grow},
		{"FailedUpdate", r.disks.adoptPVCs},
		{"FailedUpdate", r.update},
		{"FailedUpdate", r.templates.prune},
	} {
		err := step.do(ctx, w)
		if err == nil {
			continue
		}
		all = append(all, err)
		// A cache that is behind is no failure that a user can change.
		if w.failure == nil && !apierrors.IsConflict(err) {
			w.failure = &failure{step.reason, err}
		}
	}
	return errors.Join(all...)
}

func selectorOf(pool *vmPool) (labels.Selector, error) {
	t := pool.Spec.VirtualMachineTemplate
	if t == nil {
		return nil, errors.New("spec.virtualMachineTemplate: required")
	}
	return replicas.Selector(pool.Spec.Selector, template, t.ObjectMeta.Labels)
}
