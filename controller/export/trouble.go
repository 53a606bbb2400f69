package export

import (
	"cmp"
	"context"
	"slices"

	corev1 "k8s.io/api/core/v1"

	"github.com/nodevirt/nodevirt/controller/export/push"
	instances "github.com/nodevirt/nodevirt/controller/vmi"
)

func isReady(p *corev1.Pod) bool {
	for _, c := range p.Status.Conditions {
		if c.Type == corev1.PodReady {
			return c.Status == corev1.ConditionTrue
		}
	}
	return false
}

// trouble returns why a pod does not serve yet; "" for no reason but time.
func (r *Reconciler) trouble(ctx context.Context, p *corev1.Pod) (string, error) {
	for _, c := range p.Status.Conditions {
		if c.Type == corev1.PodScheduled && c.Status == corev1.ConditionFalse {
			return c.Reason + ": " + c.Message, nil
		}
	}
	for _, c := range slices.Concat(p.Status.InitContainerStatuses, p.Status.ContainerStatuses) {
		if ended := c.State.Terminated; ended != nil && ended.ExitCode == 0 { // an init container
			continue
		}
		if last := c.LastTerminationState.Terminated; last != nil && last.Message != "" {
			return complaint(c.Name, last.Message), nil
		}
		if waits := c.State.Waiting; waits != nil && waits.Reason != "ContainerCreating" {
			return waits.Reason + ": " + waits.Message, nil
		}
		if c.State.Running != nil {
			return "", nil
		}
	}
	if p.Spec.NodeName == "" {
		return "", nil
	}
	return instances.LastFailure(ctx, r.live, p) // such as a Secret that does not exist
}

// complaint returns what a container's message says of its failure.
func complaint(container, message string) string {
	if container == containerPush {
		return cmp.Or(push.ReadResult(message).Error, message)
	}
	return message
}
