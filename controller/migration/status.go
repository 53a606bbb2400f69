package migration

import (
	"context"
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	kubevirt "kubevirt.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// statuses writes the statuses of migrations and of their instances.
type statuses struct {
	client client.Client
	now    func() time.Time
}

// enter sets the phase of a migration, with its time.
func (s *statuses) enter(m *migration, phase kubevirt.VirtualMachineInstanceMigrationPhase) {
	if m.Status.Phase == phase {
		return
	}
	m.Status.Phase = phase
	m.Status.PhaseTransitionTimestamps = append(m.Status.PhaseTransitionTimestamps,
		kubevirt.VirtualMachineInstanceMigrationPhaseTransitionTimestamp{Phase: phase, PhaseTransitionTimestamp: metav1.NewTime(s.now())})
}

// since returns when the migration entered its phase.
func since(m *migration) metav1.Time {
	for _, t := range slices.Backward(m.Status.PhaseTransitionTimestamps) {
		if t.Phase == m.Status.Phase {
			return t.PhaseTransitionTimestamp
		}
	}
	return m.CreationTimestamp
}

// write changes the migration's status and writes it, if it differs.
func (s *statuses) write(ctx context.Context, m *migration, change func()) error {
	before := m.DeepCopy()
	change()
	if equality.Semantic.DeepEqual(before.Status, m.Status) {
		return nil
	}
	patch := client.MergeFromWithOptions(before, client.MergeFromWithOptimisticLock{})
	if err := s.client.Status().Patch(ctx, m, patch); err != nil {
		return ignoreGone(fmt.Errorf("write status of migration %s/%s: %w", m.Namespace, m.Name, err))
	}
	return nil
}

// report changes the state in the status of the migration's instance and writes it, if
// it differs.
func (s *statuses) report(ctx context.Context, vmi *instance, change func(*kubevirt.VirtualMachineInstanceStatus)) error {
	before := vmi.DeepCopy()
	change(&vmi.Status)
	if equality.Semantic.DeepEqual(before.Status, vmi.Status) {
		return nil
	}
	patch := client.MergeFromWithOptions(before, client.MergeFromWithOptimisticLock{})
	if err := s.client.Status().Patch(ctx, vmi, patch); err != nil {
		return fmt.Errorf("write status of VMI %s/%s: %w", vmi.Namespace, vmi.Name, err)
	}
	return nil
}

// begin writes into the instance's status that the migration has begun. The instance's
// reconciler then keeps the target's pod.
func (s *statuses) begin(ctx context.Context, m *migration, vmi *instance) error {
	return s.report(ctx, vmi, func(s *kubevirt.VirtualMachineInstanceStatus) { s.MigrationState = m.Status.MigrationState.DeepCopy() })
}

// conditionUnsettled is True while neither node runs the guest, because the source has
// no answer from the target.
const conditionUnsettled kubevirt.VirtualMachineInstanceMigrationConditionType = "nodevirt.io/Unsettled"

// setCondition sets a condition of the migration that is true, or removes it if text is
// empty.
func (s *statuses) setCondition(m *migration, kind kubevirt.VirtualMachineInstanceMigrationConditionType, reason, text string) {
	at := slices.IndexFunc(m.Status.Conditions, func(c kubevirt.VirtualMachineInstanceMigrationCondition) bool { return c.Type == kind })
	switch {
	case at < 0 && text == "":
	case text == "":
		m.Status.Conditions = slices.Delete(m.Status.Conditions, at, at+1)
	case at < 0:
		m.Status.Conditions = append(m.Status.Conditions, kubevirt.VirtualMachineInstanceMigrationCondition{
			Type: kind, Status: corev1.ConditionTrue, LastTransitionTime: metav1.NewTime(s.now()), Reason: reason, Message: text,
		})
	default:
		m.Status.Conditions[at].Reason, m.Status.Conditions[at].Message = reason, text
	}
}

func ignoreGone(err error) error {
	if apierrors.IsNotFound(err) {
		return nil
	}
	return err
}
