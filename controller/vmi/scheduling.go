package vmi

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/validation"
	kubevirt "kubevirt.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/nodevirt/nodevirt/controller/pod"
)

// schedulerTime is how long the reconciler waits for the scheduler's first condition, which mostly comes
// within milliseconds, before it reports the pod without it. The wait saves a write per instance.
const schedulerTime = 5 * time.Second

// unheard returns how long to wait for that condition; 0 for not at all. A pod of the future means that
// the clock was set back: how long it has waited is not known.
func (v view) unheard(now time.Time) time.Duration {
	p := v.pod
	if p.Spec.NodeName != "" || p.DeletionTimestamp != nil || v.terminal() || conditionOf(p, corev1.PodScheduled) != nil {
		return 0
	}
	return max(schedulerTime-now.Sub(p.CreationTimestamp.Time).Abs(), 0)
}

// skipped returns the phases between two others that the reconciler never saw, with
// their times according to the pod.
func (v view) skipped(from, to kubevirt.VirtualMachineInstancePhase) []kubevirt.VirtualMachineInstancePhaseTransitionTimestamp {
	if v.pod == nil || v.pod.Spec.NodeName == "" {
		return nil
	}
	var all []kubevirt.VirtualMachineInstancePhaseTransitionTimestamp
	if from == "" || from == kubevirt.Pending {
		all = append(all, transition(kubevirt.Scheduling, v.pod.CreationTimestamp))
	}
	bound := v.pod.CreationTimestamp
	if c := conditionOf(v.pod, corev1.PodScheduled); c != nil {
		bound = c.LastTransitionTime
	}
	if to != kubevirt.Scheduled && (len(all) > 0 || from == kubevirt.Scheduling) {
		all = append(all, transition(kubevirt.Scheduled, bound))
	}
	return all
}

// label labels an instance with its pod's node, for selectors, if the node's name is
// a valid label value.
func (f *follower) label(ctx context.Context, vmi *kubevirt.VirtualMachineInstance, p *corev1.Pod) error {
	node := p.Spec.NodeName
	if node == "" || vmi.Labels[kubevirt.NodeNameLabel] == node || vmi.DeletionTimestamp != nil || vmi.IsFinal() ||
		len(validation.IsValidLabelValue(node)) > 0 {
		return nil
	}
	before := vmi.DeepCopy()
	metav1.SetMetaDataLabel(&vmi.ObjectMeta, kubevirt.NodeNameLabel, node)
	patch := client.MergeFromWithOptions(before, client.MergeFromWithOptimisticLock{})
	if err := f.client.Patch(ctx, vmi, patch); err != nil {
		return ignoreGone(fmt.Errorf("label VMI %s/%s with its node: %w", vmi.Namespace, vmi.Name, err))
	}
	return nil
}

// annotate writes for the descheduler whether the guest moves away from its node, and for tools that back up PVCs how
// they freeze it.
func (f *follower) annotate(ctx context.Context, vmi *kubevirt.VirtualMachineInstance, p *corev1.Pod) error {
	if (view{pod: p}).terminal() {
		return nil
	}
	c, err := f.config.Read(ctx)
	if err != nil {
		return err
	}
	changes := pod.ChangeBackupHooks(vmi, p.Annotations, c)
	_, says := p.Annotations[pod.AnnotationEvictionInProgress]
	switch moves := vmi.Status.EvacuationNodeName; {
	case moves == "" && says:
		changes[pod.AnnotationEvictionInProgress] = nil
	case moves != "" && moves == p.Spec.NodeName && !says:
		changes[pod.AnnotationEvictionInProgress] = "true"
	}
	if len(changes) == 0 {
		return nil
	}
	patch, err := json.Marshal(map[string]any{"metadata": map[string]any{"annotations": changes}})
	if err != nil {
		return err
	}
	if err := f.client.Patch(ctx, p, client.RawPatch(types.MergePatchType, patch)); err != nil { // the cache has not all that goes
		return ignoreGone(fmt.Errorf("annotate pod %s/%s: %w", p.Namespace, p.Name, err))
	}
	return nil
}
