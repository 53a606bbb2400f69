package migration

import (
	"context"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/events"
	kubevirt "kubevirt.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"

	instances "github.com/nodevirt/nodevirt/controller/vmi"
	"github.com/nodevirt/nodevirt/shim/vmspec"
)

// outcomes ends migrations.
type outcomes struct {
	client client.Client
	events events.EventRecorder
	now    func() time.Time
	pods   interface {
		SettleState(ctx context.Context, vmi client.ObjectKey, migration types.UID, moved bool) error
	}
	statuses interface {
		enter(m *migration, phase kubevirt.VirtualMachineInstanceMigrationPhase)
		write(ctx context.Context, m *migration, change func()) error
		report(ctx context.Context, vmi *instance, change func(*kubevirt.VirtualMachineInstanceStatus)) error
		setCondition(m *migration, kind kubevirt.VirtualMachineInstanceMigrationConditionType, reason, text string)
	}
}

// succeed makes the target's pod the instance's. The instance's status is written first:
// it says which pod has the guest.
func (o *outcomes) succeed(ctx context.Context, w work) error {
	now := metav1.NewTime(o.now())
	if err := o.announce(ctx, w, now); err != nil {
		return err
	}
	if err := o.settleState(ctx, w.m, true); err != nil { // before the instance can start again
		return err
	}
	err := o.statuses.report(ctx, w.vmi, func(s *kubevirt.VirtualMachineInstanceStatus) {
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
	return o.conclude(ctx, w.m, w.vmi)
}

// settleState has the persistent state of a migration's instance be where the guest is.
func (o *outcomes) settleState(ctx context.Context, m *migration, moved bool) error {
	return o.pods.SettleState(ctx, client.ObjectKey{Namespace: m.Namespace, Name: m.Spec.VMIName}, m.UID, moved)
}

// announce writes on the target's pod when it had the guest, as KubeVirt does: plug-ins of CNI that
// move a pod's address with its guest then lead it there.
func (o *outcomes) announce(ctx context.Context, w work, now metav1.Time) error {
	if w.target == nil || !vmspec.AddressMoves(w.vmi.Annotations) || w.target.Annotations[kubevirt.MigrationTargetReadyTimestamp] != "" {
		return nil
	}
	before := w.target.DeepCopy()
	metav1.SetMetaDataAnnotation(&w.target.ObjectMeta, kubevirt.MigrationTargetReadyTimestamp, now.String())
	if err := o.client.Patch(ctx, w.target, client.MergeFrom(before)); err != nil {
		return ignoreGone(fmt.Errorf("annotate pod %s/%s: %w", w.target.Namespace, w.target.Name, err))
	}
	return nil
}

// fail ends a migration whose instance, if any, keeps its pod.
func (o *outcomes) fail(ctx context.Context, m *migration, vmi *instance, reason string) error {
	now := metav1.NewTime(o.now())
	end := func(s *state) {
		s.Failed, s.EndTimestamp, s.FailureReason = true, &now, reason
		// As with KubeVirt, a copy that was broken off has not completed.
		s.Completed = !cancelled(m) && m.Status.Phase != kubevirt.MigrationRunning
		if cancelled(m) {
			s.AbortRequested, s.AbortStatus = true, kubevirt.MigrationAbortSucceeded
		}
	}
	if vmi != nil && mine(m, vmi) && vmi.Status.MigrationState.EndTimestamp == nil {
		if err := o.statuses.report(ctx, vmi, func(s *kubevirt.VirtualMachineInstanceStatus) {
			s.MigrationState = m.Status.MigrationState.DeepCopy()
			end(s.MigrationState)
		}); err != nil {
			return err
		}
		return o.conclude(ctx, m, vmi)
	}
	err := o.statuses.write(ctx, m, func() {
		if m.Status.MigrationState == nil {
			m.Status.MigrationState = &state{MigrationUID: m.UID}
		}
		end(m.Status.MigrationState)
		o.statuses.enter(m, kubevirt.MigrationFailed)
	})
	if err != nil {
		return err
	}
	o.events.Eventf(m, nil, corev1.EventTypeWarning, "FailedMigration", "Migrate", "%.900s", reason)
	return o.leave(ctx, m)
}

// stay is fail for a migration whose guest never left its source. Its target's pod has no guest to wait for, even if no
// kubelet reports its end.
func (o *outcomes) stay(ctx context.Context, w work, reason string) error {
	if err := o.fail(ctx, w.m, w.vmi, reason); err != nil || w.target == nil || !w.targetState.Lost {
		return err
	}
	before := w.target.DeepCopy()
	metav1.SetMetaDataAnnotation(&w.target.ObjectMeta, instances.AnnotationNoGuest, string(w.m.UID))
	if err := o.client.Patch(ctx, w.target, client.MergeFrom(before)); err != nil {
		return ignoreGone(fmt.Errorf("annotate pod %s/%s: %w", w.target.Namespace, w.target.Name, err))
	}
	return nil
}

// conclude copies the end of the migration from its instance's status.
func (o *outcomes) conclude(ctx context.Context, m *migration, vmi *instance) error {
	s := vmi.Status.MigrationState
	err := o.statuses.write(ctx, m, func() {
		m.Status.MigrationState = s.DeepCopy()
		o.statuses.setCondition(m, conditionUnsettled, "", "")
		if s.Failed {
			o.statuses.enter(m, kubevirt.MigrationFailed)
			return
		}
		for _, phase := range []kubevirt.VirtualMachineInstanceMigrationPhase{kubevirt.MigrationRunning, kubevirt.MigrationSucceeded} {
			o.statuses.enter(m, phase)
		}
	})
	if err != nil {
		return err
	}
	if s.Failed {
		o.events.Eventf(m, vmi, corev1.EventTypeWarning, "FailedMigration", "Migrate", "%.900s", s.FailureReason)
		o.events.Eventf(vmi, m, corev1.EventTypeWarning, "FailedMigration", "Migrate",
			"VirtualMachineInstance migration uid %s failed. reason: %.800s", m.UID, s.FailureReason)
		return o.leave(ctx, m)
	}
	o.events.Eventf(m, vmi, corev1.EventTypeNormal, "SuccessfulMigration", "Migrate", "The target node has taken the guest")
	o.events.Eventf(vmi, m, corev1.EventTypeNormal, kubevirt.Migrated.String(), "Migrate",
		"The VirtualMachineInstance migrated to node %s.", s.TargetNode)
	return o.leave(ctx, m)
}

// kept is how many ended migrations of an instance remain, as in KubeVirt.
const kept = 5

// leave releases a migration that has ended and was deleted, and removes the oldest
// ended ones of its instance.
func (o *outcomes) leave(ctx context.Context, m *migration) error {
	if m.Status.Phase == kubevirt.MigrationFailed {
		if err := o.settleState(ctx, m, false); err != nil {
			return err
		}
	}
	if cancelled(m) {
		before := m.DeepCopy()
		if !controllerutil.RemoveFinalizer(m, kubevirt.VirtualMachineInstanceMigrationFinalizer) {
			return nil
		}
		if err := o.client.Patch(ctx, m, client.MergeFromWithOptions(before, client.MergeFromWithOptimisticLock{})); err != nil {
			return ignoreGone(fmt.Errorf("remove finalizer from migration %s/%s: %w", m.Namespace, m.Name, err))
		}
		return nil
	}
	var list kubevirt.VirtualMachineInstanceMigrationList
	err := o.client.List(ctx, &list, client.InNamespace(m.Namespace), client.MatchingFields{indexInstance: m.Spec.VMIName})
	if err != nil {
		return fmt.Errorf("list migrations of VMI %s/%s: %w", m.Namespace, m.Spec.VMIName, err)
	}
	for _, old := range oldest(list.Items) {
		err := o.client.Delete(ctx, old, client.Preconditions{UID: &old.UID})
		if err := ignoreGone(err); err != nil {
			return fmt.Errorf("delete migration %s/%s: %w", old.Namespace, old.Name, err)
		}
	}
	return nil
}
