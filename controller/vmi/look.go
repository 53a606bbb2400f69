package vmi

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/fields"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// views reads what is known of pods' guests.
type views struct {
	client client.Client
	live   client.Reader
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
		v.node = readNode(n)
		return v, nil
	case !apierrors.IsNotFound(err):
		return v, fmt.Errorf("read node %s: %w", p.Spec.NodeName, err)
	}
	switch err := s.live.Get(ctx, client.ObjectKey{Name: p.Spec.NodeName}, n); {
	case apierrors.IsNotFound(err):
		v.node.gone = true
	case err != nil:
		return v, fmt.Errorf("read node %s: %w", p.Spec.NodeName, err)
	default:
		v.node = readNode(n)
	}
	return v, nil
}

// troubleInEvents returns the last failure of a pod's sandbox or volumes; nil for
// none. Only events report such failures.
func (s *views) troubleInEvents(ctx context.Context, p *corev1.Pod) (*trouble, error) {
	var list corev1.EventList
	err := s.live.List(ctx, &list, client.InNamespace(p.Namespace), client.Limit(maxEvents),
		client.MatchingFieldsSelector{Selector: fields.OneTermEqualSelector("involvedObject.uid", string(p.UID))})
	if err != nil {
		return nil, fmt.Errorf("list events of pod %s: %w", p.Name, err)
	}
	var last *corev1.Event
	for i := range list.Items {
		e := &list.Items[i]
		if e.Type == corev1.EventTypeWarning && troubles[e.Reason] && (last == nil || when(e).After(when(last))) {
			last = e
		}
	}
	if last == nil {
		return nil, nil
	}
	return &trouble{reason: last.Reason, message: last.Message}, nil
}
