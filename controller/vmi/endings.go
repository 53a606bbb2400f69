package vmi

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"

	"github.com/nodevirt/nodevirt/controller/pod"
	"github.com/nodevirt/nodevirt/shim/podstatus/condition"
)

// endings deletes pods, and releases those whose guest has ended.
type endings struct{ client client.Client }

// deletePod deletes this pod, and no later one of its name, by default with the pod's
// grace period.
func (e *endings) deletePod(ctx context.Context, p *corev1.Pod, how ...client.DeleteOption) error {
	err := e.client.Delete(ctx, p, append(how, client.Preconditions{UID: &p.UID})...)
	if err != nil && !apierrors.IsNotFound(err) {
		return fmt.Errorf("delete pod %s: %w", p.Name, err)
	}
	return nil
}

// release removes the finalizer of a pod whose guest has ended, unless the pod has
// changed since it was read. It deletes the object at once if no kubelet is left to
// confirm a deletion, since Kubernetes' collector of such pods takes up to a minute.
func (e *endings) release(ctx context.Context, v view) error {
	p := v.pod
	if p == nil || !v.ended() {
		return nil
	}
	if controllerutil.ContainsFinalizer(p, pod.Finalizer) {
		before := p.DeepCopy()
		controllerutil.RemoveFinalizer(p, pod.Finalizer)
		if v.node.vacant() { // the guest may run there, and must write nothing when the node is back
			metav1.SetMetaDataAnnotation(&p.ObjectMeta, condition.AnnotationReleased, "")
		}
		patch := client.MergeFromWithOptions(before, client.MergeFromWithOptimisticLock{})
		if err := e.client.Patch(ctx, p, patch); err != nil {
			return ignoreGone(fmt.Errorf("release pod %s: %w", p.Name, err))
		}
	}
	if p.DeletionTimestamp != nil && (v.node.vacant() || v.guestless()) {
		return e.deletePod(ctx, p, client.GracePeriodSeconds(0))
	}
	return nil
}
