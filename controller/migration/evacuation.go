package migration

import (
	"context"
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/events"
	kubevirt "kubevirt.io/api/core/v1"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/nodevirt/nodevirt/controller/config"
	"github.com/nodevirt/nodevirt/controller/pod"
	"github.com/nodevirt/nodevirt/controller/setup"
	instances "github.com/nodevirt/nodevirt/controller/vmi"
)

// Evacuations makes a migration for each instance that an eviction or a taint asks to leave its
// node, and for each one that requires a migration, in a cluster where such VMs migrate by themselves.
type Evacuations struct {
	// Client reads from the cache and must wait there for its own writes.
	Client client.Client
	// Config is the cluster's configuration.
	Config config.Source
	// Events reach the users of instances.
	Events events.EventRecorder
	// Now is the time; a test may have its own.
	Now func() time.Time
}

// The wait after failed evacuations of an instance in a row, as in KubeVirt.
const (
	shortestWait = 20 * time.Second
	longestWait  = 10 * time.Minute
)

// SetUp lets the manager run the reconciler. The index is that of [Reconciler].
func (e *Evacuations) SetUp(m manager.Manager) error {
	leaves := predicate.NewPredicateFuncs(func(o client.Object) bool {
		return o.(*instance).Status.EvacuationNodeName != "" || required(o.(*instance)) || movesVolumes(o.(*instance))
	})
	all := ctrl.NewControllerManagedBy(m).
		For(new(instance), builder.WithPredicates(leaves)).
		Watches(new(migration), handler.EnqueueRequestsFromMapFunc(ofMigration)).
		Watches(new(corev1.Node), handler.EnqueueRequestsFromMapFunc(e.ofNode)).
		Watches(new(corev1.Node), handler.EnqueueRequestsFromMapFunc(e.ofUncordoned), builder.WithPredicates(uncordoned()))
	return setup.Complete(all, "evacuation", e, setup.Options{Workers: 16, Timeout: 90 * time.Second})
}

// ofMigration returns the instance of a migration that has ended.
func ofMigration(_ context.Context, o client.Object) []reconcile.Request {
	m := o.(*migration)
	if !m.IsFinal() {
		return nil
	}
	return []reconcile.Request{{NamespacedName: client.ObjectKey{Namespace: m.Namespace, Name: m.Spec.VMIName}}}
}

// ofNode returns the instances on a node that is drained.
func (e *Evacuations) ofNode(ctx context.Context, o client.Object) []reconcile.Request {
	node := o.(*corev1.Node)
	if len(node.Spec.Taints) == 0 {
		return nil
	}
	if c, err := e.Config.Read(ctx); err != nil || !drained(node, c) {
		return nil
	}
	return instances.On(ctx, e.Client, node.Name)
}

// uncordoned passes the events of nodes to which pods are scheduled again.
func uncordoned() predicate.Predicate {
	return predicate.Funcs{
		CreateFunc: func(event.CreateEvent) bool { return false },
		DeleteFunc: func(event.DeleteEvent) bool { return false },
		UpdateFunc: func(e event.UpdateEvent) bool {
			return cordoned(e.ObjectOld.(*corev1.Node)) && !cordoned(e.ObjectNew.(*corev1.Node))
		},
	}
}

// cordoned reports whether pods are not scheduled to a node.
func cordoned(n *corev1.Node) bool {
	return slices.ContainsFunc(n.Spec.Taints, func(t corev1.Taint) bool { return t.Key == corev1.TaintNodeUnschedulable })
}

// ofUncordoned returns the instances on a node to which pods are scheduled again.
func (e *Evacuations) ofUncordoned(ctx context.Context, o client.Object) []reconcile.Request {
	return instances.On(ctx, e.Client, o.GetName())
}

// drained reports whether a node has the taint by which its VMs migrate.
func drained(node *corev1.Node, c config.Config) bool {
	key := c.Migrations().NodeDrainTaintKey
	return slices.ContainsFunc(node.Spec.Taints, func(t corev1.Taint) bool { return t.Key == *key && t.Effect == corev1.TaintEffectNoSchedule })
}

// Reconcile makes the migration of an instance, if it should leave its node and none is
// under way.
func (e *Evacuations) Reconcile(ctx context.Context, req ctrl.Request) (ctrl.Result, error) {
	vmi := new(instance)
	if err := e.Client.Get(ctx, req.NamespacedName, vmi); err != nil {
		return ctrl.Result{}, client.IgnoreNotFound(err)
	}
	c, err := e.Config.Read(ctx)
	if err != nil {
		return ctrl.Result{}, err
	}
	if over, err := e.finish(ctx, vmi, c); err != nil || over {
		return ctrl.Result{}, err
	}
	volumes, err := e.movesVolumes(ctx, vmi)
	if err != nil {
		return ctrl.Result{}, err
	}
	asks, again, err := e.drains(ctx, vmi, c)
	if err != nil {
		return ctrl.Result{}, err
	}
	evacuates := asks || leaves(vmi, c.EvictionStrategy(vmi))
	if !evacuates && !volumes {
		if updates, err := e.updates(ctx, vmi); err != nil || !updates || !c.MigratesUpdated() {
			return ctrl.Result{RequeueAfter: again}, err
		}
	}
	var list kubevirt.VirtualMachineInstanceMigrationList
	// The cache has the migrations that this process has made: the read waits for them.
	err = e.Client.List(ctx, &list, client.InNamespace(vmi.Namespace), client.MatchingFields{indexInstance: vmi.Name})
	if err != nil {
		return ctrl.Result{}, fmt.Errorf("list migrations of VMI %s: %w", req, err)
	}
	busy, wait := backlog(list.Items, e.Now())
	if busy || wait > 0 {
		return ctrl.Result{RequeueAfter: wait}, nil
	}
	priority := kubevirt.PrioritySystemCritical
	m := &migration{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: vmi.Namespace, GenerateName: "kubevirt-evacuation-",
			Annotations: map[string]string{kubevirt.EvacuationMigrationAnnotation: vmi.Status.NodeName},
		},
		Spec: kubevirt.VirtualMachineInstanceMigrationSpec{VMIName: vmi.Name, Priority: &priority},
	}
	if !evacuates {
		m.GenerateName, m.Annotations = "kubevirt-workload-update-", map[string]string{kubevirt.WorkloadUpdateMigrationAnnotation: ""}
		priority = kubevirt.PrioritySystemMaintenance
	}
	if volumes {
		m.Labels = map[string]string{kubevirt.VolumesUpdateMigration: pod.LabelOf(vmi.Name)}
	}
	if err := e.Client.Create(ctx, m); err != nil {
		e.Events.Eventf(vmi, nil, corev1.EventTypeWarning, "FailedCreate", "Evacuate", "Error creating a Migration: %.900s", err.Error())
		return ctrl.Result{}, fmt.Errorf("create migration of VMI %s: %w", req, err)
	}
	e.Events.Eventf(vmi, m, corev1.EventTypeNormal, "SuccessfulCreate", "Evacuate", "Created Migration %s", m.Name)
	return ctrl.Result{}, nil
}

// leaves reports whether an instance should leave its node by a migration.
func leaves(vmi *instance, strategy kubevirt.EvictionStrategy) bool {
	return vmi.Status.EvacuationNodeName != "" && vmi.Status.EvacuationNodeName == vmi.Status.NodeName &&
		strategy != kubevirt.EvictionStrategyExternal && eligible(vmi) && !instances.Migrating(vmi)
}

// drains reports whether an instance should leave its node as the node is drained, or when to look again, as it can't
// migrate yet.
func (e *Evacuations) drains(ctx context.Context, vmi *instance, c config.Config) (now bool, again time.Duration, err error) {
	switch c.EvictionStrategy(vmi) {
	case kubevirt.EvictionStrategyLiveMigrate, kubevirt.EvictionStrategyLiveMigrateIfPossible:
	default:
		return false, 0, nil
	}
	node := new(corev1.Node)
	err = e.Client.Get(ctx, client.ObjectKey{Name: vmi.Status.NodeName}, node)
	switch {
	case vmi.Status.NodeName == "" || vmi.IsFinal() || apierrors.IsNotFound(err):
		return false, 0, nil
	case err != nil:
		return false, 0, fmt.Errorf("read node %s of VMI %s/%s: %w", vmi.Status.NodeName, vmi.Namespace, vmi.Name, err)
	case !drained(node, c) || instances.Migrating(vmi):
		return false, 0, nil
	case !eligible(vmi):
		return false, shortestWait, nil
	}
	return true, 0, nil
}

// movesVolumes reports whether an instance asks for its disks to be copied to other PVCs.
func movesVolumes(vmi *instance) bool {
	return len(vmi.Status.MigratedVolumes) > 0 && slices.ContainsFunc(vmi.Status.Conditions, func(c kubevirt.VirtualMachineInstanceCondition) bool {
		return c.Type == kubevirt.VirtualMachineInstanceVolumesChange && c.Status == corev1.ConditionTrue
	})
}

// movesVolumes reports whether a migration should copy an instance's disks to other PVCs, and none has.
func (e *Evacuations) movesVolumes(ctx context.Context, vmi *instance) (bool, error) {
	if !movesVolumes(vmi) || !eligible(vmi) || instances.Migrating(vmi) {
		return false, nil
	}
	own, err := e.own(ctx, vmi)
	return err == nil && own != nil && !pod.IsAtDestinations(vmi, own), err
}

// own returns the pod that has an instance's guest; nil if it is gone.
func (e *Evacuations) own(ctx context.Context, vmi *instance) (*corev1.Pod, error) {
	p := new(corev1.Pod)
	if err := e.Client.Get(ctx, client.ObjectKey{Namespace: vmi.Namespace, Name: pod.Current(vmi)}, p); err != nil {
		return nil, client.IgnoreNotFound(err)
	}
	return p, nil
}

// required reports whether an instance requires a migration.
func required(vmi *instance) bool {
	return slices.ContainsFunc(vmi.Status.Conditions, func(c kubevirt.VirtualMachineInstanceCondition) bool {
		return c.Type == kubevirt.VirtualMachineInstanceMigrationRequired && c.Status == corev1.ConditionTrue
	})
}

// updates reports whether an instance should get what its spec says by a migration. The condition may be from before
// the last one.
func (e *Evacuations) updates(ctx context.Context, vmi *instance) (bool, error) {
	if !required(vmi) || !eligible(vmi) || instances.Migrating(vmi) {
		return false, nil
	}
	own, err := e.own(ctx, vmi)
	if err != nil || own == nil {
		return false, err
	}
	return pod.OtherNetworks(vmi, own), nil
}

// automatic reports whether the controller has made a migration.
func automatic(m *migration) bool {
	_, update := m.Annotations[kubevirt.WorkloadUpdateMigrationAnnotation]
	return update || m.Annotations[kubevirt.EvacuationMigrationAnnotation] != ""
}

// backlog reports whether a migration of an instance is under way, and how long the next
// evacuation has to wait after those that failed in a row.
func backlog(all []migration, now time.Time) (busy bool, wait time.Duration) {
	var succeeded, last time.Time
	endOf := func(m *migration) time.Time {
		if s := m.Status.MigrationState; s != nil && s.EndTimestamp != nil {
			return s.EndTimestamp.Time
		}
		return m.CreationTimestamp.Time
	}
	for i := range all {
		switch m := &all[i]; {
		case !m.IsFinal():
			return true, 0
		case m.Status.Phase == kubevirt.MigrationSucceeded && endOf(m).After(succeeded):
			succeeded = endOf(m)
		}
	}
	failures := 0
	for i := range all {
		m := &all[i]
		if m.Status.Phase != kubevirt.MigrationFailed || !automatic(m) || endOf(m).Before(succeeded) {
			continue
		}
		failures++
		if endOf(m).After(last) {
			last = endOf(m)
		}
	}
	if failures == 0 {
		return false, 0
	}
	return false, max(min(shortestWait<<(failures-1), longestWait)-now.Sub(last).Abs(), 0)
}
