package migration

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	kubevirt "kubevirt.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"
)

// succeed makes the target's pod the instance's. The instance's status is written first:
// it says which pod has the guest.
func (r *Reconciler) succeed(ctx context.Context, w work) error {
	now := metav1.NewTime(r.Now())
	err := r.report(ctx, w.vmi, func(s *kubevirt.VirtualMachineInstanceStatus) {
		s.MigrationState = w.m.Status.MigrationState.DeepCopy()
		m := s.MigrationState
		m.Completed, m.EndTimestamp = true, &now
		m.TargetNodeDomainDetected, m.TargetNodeDomainReadyTimestamp = true, &now
		m.FailureReason = ""
		if m.AbortRequested {
			m.AbortStatus = kubevirt.MigrationAbortFailed
		}
		s.NodeName, s.EvacuationNodeName = m.TargetNode, ""
		if w.target != nil {
			s.ActivePods = map[types.UID]string{w.target.UID: m.TargetNode}
		}
	})
	if err != nil {
		return err
	}
	return r.conclude(ctx, w.m, w.vmi)
}

// fail ends a migration whose instance, if any, keeps its pod.
func (r *Reconciler) fail(ctx context.Context, m *migration, vmi *instance, reason string) error {
	now := metav1.NewTime(r.Now())
	end := func(s *state) {
		s.Completed, s.Failed, s.EndTimestamp, s.FailureReason = true, true, &now, reason
		if cancelled(m) {
			s.AbortRequested, s.AbortStatus = true, kubevirt.MigrationAbortSucceeded
		}
	}
	if vmi != nil && mine(m, vmi) && vmi.Status.MigrationState.EndTimestamp == nil {
		if err := r.report(ctx, vmi, func(s *kubevirt.VirtualMachineInstanceStatus) {
			s.MigrationState = m.Status.MigrationState.DeepCopy()
			end(s.MigrationState)
		}); err != nil {
			return err
		}
		return r.conclude(ctx, m, vmi)
	}
	err := r.write(ctx, m, func() {
		if m.Status.MigrationState == nil {
			m.Status.MigrationState = &state{MigrationUID: m.UID}
		}
		end(m.Status.MigrationState)
		r.enter(m, kubevirt.MigrationFailed)
	})
	if err != nil {
		return err
	}
	r.Events.Eventf(m, nil, corev1.EventTypeWarning, "FailedMigration", "Migrate", "%.900s", reason)
	return r.leave(ctx, m)
}

// conclude copies the end of the migration from its instance's status.
func (r *Reconciler) conclude(ctx context.Context, m *migration, vmi *instance) error {
	s := vmi.Status.MigrationState
	err := r.write(ctx, m, func() {
		m.Status.MigrationState = s.DeepCopy()
		r.setCondition(m, conditionUnsettled, "", "")
		if s.Failed {
			r.enter(m, kubevirt.MigrationFailed)
			return
		}
		for _, phase := range []kubevirt.VirtualMachineInstanceMigrationPhase{kubevirt.MigrationRunning, kubevirt.MigrationSucceeded} {
			r.enter(m, phase)
		}
	})
	if err != nil {
		return err
	}
	if s.Failed {
		r.Events.Eventf(m, vmi, corev1.EventTypeWarning, "FailedMigration", "Migrate", "%.900s", s.FailureReason)
		r.Events.Eventf(vmi, m, corev1.EventTypeWarning, "FailedMigration", "Migrate",
			"VirtualMachineInstance migration uid %s failed. reason: %.800s", m.UID, s.FailureReason)
		return r.leave(ctx, m)
	}
	r.Events.Eventf(m, vmi, corev1.EventTypeNormal, "SuccessfulMigration", "Migrate", "The target node has taken the guest")
	r.Events.Eventf(vmi, m, corev1.EventTypeNormal, kubevirt.Migrated.String(), "Migrate",
		"The VirtualMachineInstance migrated to node %s.", s.TargetNode)
	return r.leave(ctx, m)
}

// kept is how many ended migrations of an instance remain, as in KubeVirt.
const kept = 5

// leave releases a migration that has ended and was deleted, and removes the oldest
// ended ones of its instance.
func (r *Reconciler) leave(ctx context.Context, m *migration) error {
	if cancelled(m) {
		before := m.DeepCopy()
		if !controllerutil.RemoveFinalizer(m, kubevirt.VirtualMachineInstanceMigrationFinalizer) {
			return nil
		}
		if err := r.Client.Patch(ctx, m, client.MergeFromWithOptions(before, client.MergeFromWithOptimisticLock{})); err != nil {
			return ignoreGone(fmt.Errorf("remove finalizer from migration %s/%s: %w", m.Namespace, m.Name, err))
		}
		return nil
	}
	var list kubevirt.VirtualMachineInstanceMigrationList
	err := r.Client.List(ctx, &list, client.InNamespace(m.Namespace), client.MatchingFields{indexInstance: m.Spec.VMIName})
	if err != nil {
		return fmt.Errorf("list migrations of VMI %s/%s: %w", m.Namespace, m.Spec.VMIName, err)
	}
	for _, old := range oldest(list.Items) {
		err := r.Client.Delete(ctx, old, client.Preconditions{UID: &old.UID})
		if err := ignoreGone(err); err != nil {
			return fmt.Errorf("delete migration %s/%s: %w", old.Namespace, old.Name, err)
		}
	}
	return nil
}
