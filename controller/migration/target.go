package migration

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	kubevirt "kubevirt.io/api/core/v1"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/nodevirt/nodevirt/controller/pod"
	instances "github.com/nodevirt/nodevirt/controller/vmi"
	"github.com/nodevirt/nodevirt/shim/migrate/order"
	"github.com/nodevirt/nodevirt/shim/podstatus/condition"
)

// How long a target's pod may take, as in KubeVirt, unless the migration's annotations say otherwise.
const (
	unschedulableFor = 5 * time.Minute
	pendingFor       = 15 * time.Minute
	longestLimit     = 24 * time.Hour
)

// limitOf returns a limit from an annotation with seconds, or the usual one if there is none that is usable.
func limitOf(m *kubevirt.VirtualMachineInstanceMigration, annotation string, usual time.Duration) time.Duration {
	seconds, err := strconv.ParseUint(m.Annotations[annotation], 10, 31)
	if err != nil || seconds == 0 {
		return usual
	}
	return min(time.Duration(seconds)*time.Second, longestLimit)
}

// schedule makes the target's pod, and waits until its VM waits for the guest.
func (r *Reconciler) schedule(ctx context.Context, w work) (ctrl.Result, error) {
	switch {
	case cancelled(w.m):
		return ctrl.Result{}, r.giveUp(ctx, w, reasonCancelled)
	case w.sourceState.Ended:
		return ctrl.Result{}, r.outcomes.fail(ctx, w.m, w.vmi, "Migration failed vmi shutdown during migration.")
	case w.target == nil:
		return r.create(ctx, w)
	case w.targetState.Ended || w.target.DeletionTimestamp != nil:
		return ctrl.Result{}, r.giveUp(ctx, w, "Migration failed because target pod shutdown during migration")
	}
	waits, err := r.mount(ctx, w)
	if err != nil {
		return ctrl.Result{}, err
	}
	if w.targetState.Running && waits == "" {
		return r.scheduled(ctx, w)
	}
	age, limit := r.now().Sub(w.target.CreationTimestamp.Time).Abs(), limitOf(w.m, kubevirt.MigrationPendingPodTimeoutSecondsAnnotation, pendingFor)
	why := "is pending"
	at := slices.IndexFunc(w.target.Status.Conditions, func(c corev1.PodCondition) bool {
		return c.Type == corev1.PodScheduled && c.Status == corev1.ConditionFalse && c.Reason == corev1.PodReasonUnschedulable
	})
	if at >= 0 {
		limit = limitOf(w.m, kubevirt.MigrationUnschedulablePodTimeoutSecondsAnnotation, unschedulableFor)
		why = "is unschedulable: " + w.target.Status.Conditions[at].Message
		r.events.Eventf(w.m, w.vmi, corev1.EventTypeWarning, "migrationTargetPodUnschedulable", "Schedule", "Target pod %s %.900s", w.target.Name, why)
	} else if w.targetState.Running {
		why = "waits for " + waits
	} else if c := vmReady(w.target); c != nil && c.Status == corev1.ConditionFalse && c.Message != "" {
		why = "does not start: " + c.Message
	}
	if age < limit {
		return ctrl.Result{RequeueAfter: limit - age}, nil // the pod's events trigger the next step
	}
	return ctrl.Result{}, r.giveUp(ctx, w, fmt.Sprintf("Target pod %s timed out after %s: it %s", w.target.Name, limit, clip(why)))
}

// giveUp ends a migration before its source has begun. The source hears of it, if it can: CNI may have announced the guest's
// addresses at the target's pod, and the source announces them again.
func (r *Reconciler) giveUp(ctx context.Context, w work, reason string) error {
	if w.target != nil && w.target.Spec.NodeName != "" && !w.sourceState.Ended {
		_, _ = r.orders.ask(ctx, w.m, w.source, order.Cancel, named(w.m)) // it ends without an answer, too
	}
	return r.outcomes.fail(ctx, w.m, w.vmi, reason)
}

// mount has the target's node, as soon as there is one, mount the volumes that the VM has got. It returns
// what is not mounted yet; "" for nothing.
func (r *Reconciler) mount(ctx context.Context, w work) (waits string, err error) {
	if w.target.Spec.NodeName == "" {
		return "", nil
	}
	_, waits, err = r.volumes.Attach(ctx, w.vmi, w.source, w.target)
	return waits, err
}

// create makes the target's pod.
func (r *Reconciler) create(ctx context.Context, w work) (ctrl.Result, error) {
	vmi := pod.AtDestinations(instances.WithMACs(pod.AsMoved(w.vmi, w.source)))
	user, err := r.pods.UserOf(ctx, vmi)
	if err != nil {
		return ctrl.Result{}, err
	}
	if user != "" {
		return ctrl.Result{}, r.outcomes.fail(ctx, w.m, w.vmi, "Failed to make the target pod: "+user)
	}
	if missing, err := r.pods.MissingNetwork(ctx, vmi); err != nil {
		return ctrl.Result{}, err
	} else if missing != "" {
		return ctrl.Result{}, r.outcomes.fail(ctx, w.m, w.vmi, fmt.Sprintf("Failed to make the target pod: network %s does not exist: "+
			"create the NetworkAttachmentDefinition again", missing))
	}
	state, err := r.pods.MoveState(ctx, vmi)
	if err != nil {
		return ctrl.Result{}, err
	}
	p, err := r.pods.Manifest(ctx, vmi, state)
	if err != nil {
		return ctrl.Result{}, r.outcomes.fail(ctx, w.m, w.vmi, "Failed to make the target pod: "+clip(err.Error()))
	}
	pod.SetCopied(p, vmi, pod.Plugged(w.vmi, w.source))
	pod.PinImage(p, w.source, &vmi.Spec)
	pod.Target(p, w.vmi, w.m, vmReady(w.source) != nil)
	if err := r.pods.KeepAddresses(ctx, vmi, p, w.source); err != nil {
		return ctrl.Result{}, err
	}
	switch err := r.client.Create(ctx, p); {
	case apierrors.IsAlreadyExists(err):
		return r.existing(ctx, w, p.Name)
	case apierrors.IsForbidden(err):
		return ctrl.Result{RequeueAfter: waitAgain}, r.statuses.write(ctx, w.m, func() {
			r.statuses.setCondition(w.m, kubevirt.VirtualMachineInstanceMigrationRejectedByResourceQuota, "FailedCreate", clip(err.Error()))
		})
	case err != nil:
		r.events.Eventf(w.m, w.vmi, corev1.EventTypeWarning, "FailedCreate", "Create", "Error creating pod: %.900s", err.Error())
		return ctrl.Result{}, fmt.Errorf("create pod %s: %w", p.Name, err)
	}
	r.events.Eventf(w.m, p, corev1.EventTypeNormal, "SuccessfulCreate", "Create", "Created migration target pod %s", p.Name)
	if err := r.warnOfCPU(ctx, w.vmi, p); err != nil {
		return ctrl.Result{}, err
	}
	return ctrl.Result{}, r.statuses.write(ctx, w.m, func() {
		r.statuses.setCondition(w.m, kubevirt.VirtualMachineInstanceMigrationRejectedByResourceQuota, "", "")
	})
}

// warnOfCPU has an event for the instance's users if no node can give the guest the CPU that it has. The target waits nevertheless:
// there may be such a node soon.
func (r *Reconciler) warnOfCPU(ctx context.Context, vmi *kubevirt.VirtualMachineInstance, target *corev1.Pod) error {
	needs := pod.CPULabels(target)
	if needs.Empty() {
		return nil
	}
	var nodes metav1.PartialObjectMetadataList
	nodes.SetGroupVersionKind(corev1.SchemeGroupVersion.WithKind("NodeList"))
	if err := r.live.List(ctx, &nodes, client.MatchingLabelsSelector{Selector: needs}, client.Limit(2)); err != nil { // the cache has no labels
		return fmt.Errorf("list nodes: %w", err)
	}
	if !slices.ContainsFunc(nodes.Items, func(n metav1.PartialObjectMetadata) bool { return n.Name != vmi.Status.NodeName }) {
		r.events.Eventf(vmi, target, corev1.EventTypeWarning, "NoSuitableNodesForHostModelMigration", "Migrate",
			"The guest has the CPU of node %s, and no other node has the labels %.700s", vmi.Status.NodeName, needs.String())
	}
	return nil
}

// existing waits for the cache if a pod of the target's name is the target's.
func (r *Reconciler) existing(ctx context.Context, w work, name string) (ctrl.Result, error) {
	p := new(corev1.Pod)
	err := r.live.Get(ctx, client.ObjectKey{Namespace: w.m.Namespace, Name: name}, p)
	if err != nil && !apierrors.IsNotFound(err) {
		return ctrl.Result{}, fmt.Errorf("read pod %s: %w", name, err)
	}
	if err == nil && p.Annotations[order.Annotation] != string(w.m.UID) {
		return ctrl.Result{}, r.outcomes.fail(ctx, w.m, w.vmi, fmt.Sprintf("Pod %s is not of this migration: remove it", name))
	}
	return ctrl.Result{RequeueAfter: time.Second}, nil
}

// scheduled goes on with a target whose VM waits. The next write says so, too.
func (r *Reconciler) scheduled(ctx context.Context, w work) (ctrl.Result, error) {
	return r.prepare(ctx, w, func() {
		r.statuses.enter(w.m, kubevirt.MigrationScheduled)
		r.statuses.enter(w.m, kubevirt.MigrationPreparingTarget)
		s := w.m.Status.MigrationState
		s.TargetNode, s.SourcePersistentStatePVCName, s.TargetPersistentStatePVCName = w.target.Spec.NodeName, pod.StateOf(w.source), pod.StateOf(w.target)
	})
}

// vmReady is what a pod's node reports of its VM; nil if it reports nothing.
func vmReady(p *corev1.Pod) *corev1.PodCondition {
	if p == nil {
		return nil
	}
	for i := range p.Status.Conditions {
		if p.Status.Conditions[i].Type == condition.VMReady {
			return &p.Status.Conditions[i]
		}
	}
	return nil
}
