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

// follow reports the pod's state in the instance's status, and releases an ended pod.
func (r *Reconciler) follow(
	ctx context.Context, vmi *kubevirt.VirtualMachineInstance, p *corev1.Pod,
) (ctrl.Result, error) {
	v, err := r.look(ctx, p)
	if err != nil {
		return ctrl.Result{}, err
	}
	if v.ended() && Migrating(vmi) && vmi.DeletionTimestamp == nil {
		return ctrl.Result{}, nil // the guest may run on the target: the migration's end says so
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
	if v.running() {
		if v.pvcs, err = r.pvcObjects(ctx, vmi); err != nil {
			return ctrl.Result{}, err
		}
		if err := r.markFilled(ctx, pod.AsStarted(vmi, p), v.pvcs); err != nil {
			return ctrl.Result{}, err
		}
	}
	if err := r.label(ctx, vmi, p); err != nil {
		return ctrl.Result{}, err
	}
	if wait, err := r.resize(ctx, vmi, &v); err != nil {
		return ctrl.Result{}, err
	} else if wait > 0 {
		next = wait // a guest that runs has no other
	}
	if err := r.report(ctx, vmi, v); err != nil {
		return ctrl.Result{}, err
	}
	if vmi.DeletionTimestamp != nil && v.ended() && controllerutil.ContainsFinalizer(p, pod.Finalizer) {
		r.Events.Eventf(vmi, p, corev1.EventTypeNormal, kubevirt.Deleted.String(), "Delete", "Signaled Deletion")
	}
	if err := r.release(ctx, v); err != nil { // only now: the end is on record
		return ctrl.Result{}, err
	}
	return ctrl.Result{RequeueAfter: next}, nil
}

// look reads the pod's node.
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

// remove ends the guest of a deleted instance, and then releases the instance.
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
		if v := (view{pod: p}); v.running() && !v.completed() && grace(vmi) > 0 {
			r.Events.Eventf(vmi, p, corev1.EventTypeNormal, kubevirt.ShuttingDown.String(), "Delete", "Signaled Graceful Shutdown")
		}
		return ctrl.Result{}, nil // the pod's event triggers the next step
	}
	return r.follow(ctx, vmi, p)
}

// grace returns the seconds that the guest has to shut down.
func grace(vmi *kubevirt.VirtualMachineInstance) int64 {
	if g := vmi.Spec.TerminationGracePeriodSeconds; g != nil {
		return *g
	}
	return pod.DefaultGracePeriod
}

// forget removes the finalizer of an instance whose pod is really gone.
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
	if there, err := r.othersExist(ctx, vmi); err != nil || there {
		return ctrl.Result{}, err // their events trigger the next step
	}
	before := vmi.DeepCopy()
	controllerutil.RemoveFinalizer(vmi, kubevirt.VirtualMachineInstanceFinalizer)
	patch := client.MergeFromWithOptions(before, client.MergeFromWithOptimisticLock{})
	if err := r.Client.Patch(ctx, vmi, patch); err != nil {
		return ctrl.Result{}, ignoreGone(fmt.Errorf("remove finalizer from VMI %s: %w", vmi.Name, err))
	}
	return ctrl.Result{}, nil
}

// deletePod deletes this pod, and no later one of its name, by default with the pod's
// grace period.
func (r *Reconciler) deletePod(ctx context.Context, p *corev1.Pod, how ...client.DeleteOption) error {
	err := r.Client.Delete(ctx, p, append(how, client.Preconditions{UID: &p.UID})...)
	if err != nil && !apierrors.IsNotFound(err) {
		return fmt.Errorf("delete pod %s: %w", p.Name, err)
	}
	return nil
}

// release removes the finalizer of a pod whose guest has ended, unless the pod has
// changed since it was read. It deletes the object at once if no kubelet is left to
// confirm a deletion, since Kubernetes' collector of such pods takes up to a minute.
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
