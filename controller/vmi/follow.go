package vmi

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	kubevirt "kubevirt.io/api/core/v1"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"

	"github.com/nodevirt/nodevirt/controller/pod"
)

// follow tells on the instance what its pod is at, and lets an ended pod go.
func (r *Reconciler) follow(
	ctx context.Context, vmi *kubevirt.VirtualMachineInstance, p *corev1.Pod,
) (ctrl.Result, error) {
	v, err := r.look(ctx, p)
	if err != nil {
		return ctrl.Result{}, err
	}
	if wait := v.unheard(r.Now()); wait > 0 {
		return ctrl.Result{RequeueAfter: wait}, nil
	}
	due, next := v.lookAgain(r.Now())
	if due {
		if v.trouble, err = r.troubleInEvents(ctx, p); err != nil {
			return ctrl.Result{}, err
		}
	}
	if err := r.label(ctx, vmi, p); err != nil {
		return ctrl.Result{}, err
	}
	if err := r.report(ctx, vmi, v); err != nil {
		return ctrl.Result{}, err
	}
	if err := r.release(ctx, v); err != nil { // only now: the end is on record
		return ctrl.Result{}, err
	}
	return ctrl.Result{RequeueAfter: next}, nil
}

// look joins a pod with its node.
func (r *Reconciler) look(ctx context.Context, p *corev1.Pod) (view, error) {
	v := view{pod: p}
	if p.Spec.NodeName == "" {
		return v, nil
	}
	n := new(corev1.Node)
	switch err := r.Client.Get(ctx, client.ObjectKey{Name: p.Spec.NodeName}, n); {
	case err == nil:
		v.node = readNode(n)
		return v, nil
	case !apierrors.IsNotFound(err):
		return v, fmt.Errorf("read node %s: %w", p.Spec.NodeName, err)
	}
	switch err := r.Live.Get(ctx, client.ObjectKey{Name: p.Spec.NodeName}, n); {
	case apierrors.IsNotFound(err):
		v.node.gone = true
	case err != nil:
		return v, fmt.Errorf("read node %s: %w", p.Spec.NodeName, err)
	default:
		v.node = readNode(n)
	}
	return v, nil
}

// remove ends a deleted instance's guest, and then the instance.
func (r *Reconciler) remove(
	ctx context.Context, vmi *kubevirt.VirtualMachineInstance, p *corev1.Pod,
) (ctrl.Result, error) {
	if p == nil {
		return r.forget(ctx, vmi)
	}
	if p.DeletionTimestamp == nil {
		if err := r.deletePod(ctx, p); err != nil {
			return ctrl.Result{}, err
		}
		r.Events.Eventf(vmi, p, corev1.EventTypeNormal, "SuccessfulDelete", "Delete",
			"Deleted virtual machine pod %s", p.Name)
		return ctrl.Result{}, nil // the pod's own event goes on
	}
	return r.follow(ctx, vmi, p)
}

// forget takes the finalizer off an instance whose pod is really gone.
func (r *Reconciler) forget(ctx context.Context, vmi *kubevirt.VirtualMachineInstance) (ctrl.Result, error) {
	if !controllerutil.ContainsFinalizer(vmi, kubevirt.VirtualMachineInstanceFinalizer) {
		return ctrl.Result{}, nil
	}
	p, err := ownPod(ctx, r.Live, vmi)
	if err != nil {
		return ctrl.Result{}, err
	}
	if p != nil {
		return r.reclaim(ctx, vmi, p.Name)
	}
	before := vmi.DeepCopy()
	controllerutil.RemoveFinalizer(vmi, kubevirt.VirtualMachineInstanceFinalizer)
	patch := client.MergeFromWithOptions(before, client.MergeFromWithOptimisticLock{})
	if err := r.Client.Patch(ctx, vmi, patch); err != nil {
		return ctrl.Result{}, ignoreGone(fmt.Errorf("take finalizer off VMI %s: %w", vmi.Name, err))
	}
	return ctrl.Result{}, nil
}

// deletePod deletes that very pod, in its own grace period if nothing else is said.
func (r *Reconciler) deletePod(ctx context.Context, p *corev1.Pod, how ...client.DeleteOption) error {
	err := r.Client.Delete(ctx, p, append(how, client.Preconditions{UID: &p.UID})...)
	if err != nil && !apierrors.IsNotFound(err) {
		return fmt.Errorf("delete pod %s: %w", p.Name, err)
	}
	return nil
}

// release takes the finalizer off a pod whose guest has ended. A pod that has
// changed since it was looked at is looked at again. One that is deleted goes at
// once where no kubelet is left to confirm it: Kubernetes' own collector of such
// pods takes up to a minute.
func (r *Reconciler) release(ctx context.Context, v view) error {
	p := v.pod
	if p == nil || !v.ended() {
		return nil
	}
	if controllerutil.ContainsFinalizer(p, pod.Finalizer) {
		before := p.DeepCopy()
		controllerutil.RemoveFinalizer(p, pod.Finalizer)
		patch := client.MergeFromWithOptions(before, client.MergeFromWithOptimisticLock{})
		if err := r.Client.Patch(ctx, p, patch); err != nil {
			return ignoreGone(fmt.Errorf("release pod %s: %w", p.Name, err))
		}
	}
	if p.DeletionTimestamp != nil && v.node.vacant() {
		return r.deletePod(ctx, p, client.GracePeriodSeconds(0))
	}
	return nil
}
