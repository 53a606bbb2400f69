package vmi

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	kubevirt "kubevirt.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// views reads what is known of pods' guests.
type views struct {
	client client.Client
	live   client.Reader
	events *eventLooks
	// departures knows which of the nodes that do not exist have no guests.
	departures *departures
}

// look reads the pod's node.
func (s *views) look(ctx context.Context, p *corev1.Pod) (view, error) {
	v := view{pod: p}
	if p.Spec.NodeName == "" {
		return v, nil
	}
	n := new(corev1.Node)
	switch err := s.client.Get(ctx, client.ObjectKey{Name: p.Spec.NodeName}, n); {
	case err == nil:
		s.departures.returned(p.Spec.NodeName)
		v.node = readNode(n)
		return v, nil
	case !apierrors.IsNotFound(err):
		return v, fmt.Errorf("read node %s: %w", p.Spec.NodeName, err)
	}
	switch err := s.live.Get(ctx, client.ObjectKey{Name: p.Spec.NodeName}, n); {
	case apierrors.IsNotFound(err):
		wait, err := s.departures.wait(ctx, p)
		if err != nil {
			return v, err
		}
		v.node.deleted, v.node.gone, v.again = wait > 0, wait == 0, min(wait, leasePoll)
	case err != nil:
		return v, fmt.Errorf("read node %s: %w", p.Spec.NodeName, err)
	default:
		s.departures.returned(p.Spec.NodeName)
		v.node = readNode(n)
	}
	return v, nil
}

// unhealthy reports whether the kubelet ended the guest of an instance since its liveness probe failed, and not its pod.
func (s *views) unhealthy(ctx context.Context, vmi *kubevirt.VirtualMachineInstance, v view) (bool, error) {
	phase := v.phase()
	if vmi.Spec.LivenessProbe == nil || vmi.IsFinal() || v.pod == nil || v.pod.DeletionTimestamp != nil ||
		phase != kubevirt.Succeeded && phase != kubevirt.Failed {
		return false, nil
	}
	return livenessFailed(ctx, s.live, v.pod)
}

// troubleInEvents returns the last failure of a pod's sandbox or volumes; nil for
// none. Only events report such failures.
func (s *views) troubleInEvents(ctx context.Context, p *corev1.Pod) (*trouble, error) {
	return s.events.lastFailure(ctx, p)
}
