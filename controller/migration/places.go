package migration

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	kubevirt "kubevirt.io/api/core/v1"
	migrations "kubevirt.io/api/migrations/v1alpha1"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/nodevirt/nodevirt/controller/migrationpolicy"
	"github.com/nodevirt/nodevirt/controller/pod"
)

// waitAgain is how long a migration waits for a place if no event says that one is free.
const waitAgain = 30 * time.Second

// lookForPVC is how long a migration waits for a PVC to which a disk should be copied.
const lookForPVC = 2 * time.Second

// places lets one worker at a time look for a place and take it.
type places struct{ mu sync.Mutex }

// wait begins a migration once it has a place.
func (r *Reconciler) wait(ctx context.Context, m *migration, vmi *instance) (ctrl.Result, error) {
	if cancelled(m) {
		return ctrl.Result{}, r.outcomes.fail(ctx, m, nil, reasonCancelled)
	}
	if why := unable(vmi); why != "" {
		return ctrl.Result{}, r.outcomes.fail(ctx, m, nil, why)
	}
	there, err := r.destinations(ctx, vmi)
	if err != nil {
		return ctrl.Result{}, err
	}
	took, again := false, waitAgain
	if !there {
		again = lookForPVC
	} else if eligible(vmi) {
		if took, err = r.take(ctx, m, vmi); err != nil {
			return ctrl.Result{}, err
		}
	}
	switch {
	case took:
		return r.proceed(ctx, m, vmi)
	case m.Status.Phase == kubevirt.MigrationPending:
		return ctrl.Result{RequeueAfter: again}, nil
	}
	return ctrl.Result{RequeueAfter: again}, r.statuses.write(ctx, m, func() { r.statuses.enter(m, kubevirt.MigrationPending) })
}

// destinations reports whether the PVCs exist to which an instance's disks should be copied.
func (r *Reconciler) destinations(ctx context.Context, vmi *instance) (bool, error) {
	for _, moved := range vmi.Status.MigratedVolumes {
		if moved.DestinationPVCInfo == nil {
			continue
		}
		err := r.client.Get(ctx, client.ObjectKey{Namespace: vmi.Namespace, Name: moved.DestinationPVCInfo.ClaimName}, new(corev1.PersistentVolumeClaim))
		if apierrors.IsNotFound(err) {
			return false, nil
		}
		if err != nil {
			return false, fmt.Errorf("read PVC %s/%s: %w", vmi.Namespace, moved.DestinationPVCInfo.ClaimName, err)
		}
	}
	return true, nil
}

// take reports whether the migration has a place, and writes that it has.
func (r *Reconciler) take(ctx context.Context, m *migration, vmi *instance) (bool, error) {
	r.places.mu.Lock()
	defer r.places.mu.Unlock()
	var list kubevirt.VirtualMachineInstanceMigrationList
	// The cache has the places that this process has given: the read waits for them.
	if err := r.client.List(ctx, &list, client.MatchingFields{indexUnfinished: unfinished}); err != nil {
		return false, fmt.Errorf("list migrations: %w", err)
	}
	nodeOf := func(other *migration) string {
		if other.UID == m.UID {
			return vmi.Status.NodeName
		}
		of := new(instance)
		if err := r.client.Get(ctx, client.ObjectKey{Namespace: other.Namespace, Name: other.Spec.VMIName}, of); err != nil {
			return ""
		}
		return of.Status.NodeName
	}
	c, err := r.config.Read(ctx)
	if err != nil {
		return false, err
	}
	cluster := c.Migrations()
	if !hasPlace(m, list.Items, limits{int(*cluster.ParallelMigrationsPerCluster), int(*cluster.ParallelOutboundMigrationsPerNode)}, nodeOf) {
		return false, nil
	}
	policy, err := r.policyOf(ctx, vmi)
	if err != nil {
		return false, err
	}
	return true, r.statuses.write(ctx, m, func() {
		r.statuses.enter(m, kubevirt.MigrationPending)
		r.statuses.enter(m, kubevirt.MigrationScheduling)
		m.Status.MigrationState = &state{
			MigrationUID: m.UID, Mode: kubevirt.MigrationPreCopy,
			SourceNode: vmi.Status.NodeName, SourcePod: pod.Current(vmi), TargetPod: pod.TargetName(vmi, m),
			VMIMConfigurationOptions: migrationpolicy.Configure(policy, cluster),
		}
		if policy != nil {
			m.Status.MigrationState.MigrationPolicyName = &policy.Name
		}
	})
}

// policyOf returns the policy for an instance's migrations; nil for none.
func (r *Reconciler) policyOf(ctx context.Context, vmi *instance) (*migrations.MigrationPolicy, error) {
	var all migrations.MigrationPolicyList
	if err := r.client.List(ctx, &all); err != nil {
		return nil, fmt.Errorf("list migration policies: %w", err)
	}
	if len(all.Items) == 0 {
		return nil, nil
	}
	namespace := new(corev1.Namespace)
	if err := r.live.Get(ctx, client.ObjectKey{Name: vmi.Namespace}, namespace); err != nil {
		return nil, fmt.Errorf("read namespace %s: %w", vmi.Namespace, err)
	}
	return migrationpolicy.Match(all.Items, vmi.Labels, namespace.Labels), nil
}

// limits are how many migrations run at once.
type limits struct{ inCluster, fromNode int }

// hasPlace reports whether a pending migration may begin: those with a higher priority,
// and among equals the older ones, come first. NodeOf returns the node of a pending
// one's instance; "" if it is not known.
func hasPlace(m *migration, all []migration, most limits, nodeOf func(*migration) string) bool {
	cluster, from := 0, map[string]int{}
	var pending []*migration
	for i := range all {
		switch other := &all[i]; {
		case isPending(other):
			if other.DeletionTimestamp == nil {
				pending = append(pending, other)
			}
		case !other.IsFinal():
			cluster++
			if s := other.Status.MigrationState; s != nil {
				from[s.SourceNode]++
			}
		}
	}
	slices.SortFunc(pending, func(a, b *migration) int {
		return cmp.Or(
			cmp.Compare(rank(a), rank(b)),
			a.CreationTimestamp.Compare(b.CreationTimestamp.Time),
			cmp.Compare(a.UID, b.UID),
		)
	})
	for _, other := range pending {
		node := nodeOf(other)
		room := cluster < most.inCluster && from[node] < most.fromNode
		if other.UID == m.UID {
			return room
		}
		if room && node != "" {
			cluster++
			from[node]++
		}
	}
	return false
}

func rank(m *migration) int {
	priority := kubevirt.PriorityUserTriggered
	if m.Spec.Priority != nil {
		priority = *m.Spec.Priority
	}
	return slices.Index([]kubevirt.MigrationPriority{
		kubevirt.PrioritySystemCritical, kubevirt.PriorityUserTriggered, kubevirt.PrioritySystemMaintenance,
	}, priority)
}
