package vmi

import (
	"context"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	kubevirt "kubevirt.io/api/core/v1"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/nodevirt/nodevirt/controller/pod"
)

// Reconciler decides which step an instance takes next. Its parts take the steps.
type Reconciler struct {
	// Guests are the VMs of instances, for hot-plugged volumes.
	Guests *Guests
	// Pods are the pods of instances, for migrations and snapshots.
	Pods *Pods
	// Consumers have PVCs bound, also for restores.
	Consumers *Consumers

	client     client.Client
	departures *departures
	strays     *strays
	maker      *maker
	follower   *follower
	reports    *reporter
}

// Reconcile takes the next step for the instance of a name, or for the pods that an
// instance of that name has left.
func (r *Reconciler) Reconcile(ctx context.Context, req ctrl.Request) (ctrl.Result, error) {
	vmi := new(kubevirt.VirtualMachineInstance)
	if err := r.client.Get(ctx, req.NamespacedName, vmi); apierrors.IsNotFound(err) {
		vmi = nil
	} else if err != nil {
		return ctrl.Result{}, fmt.Errorf("read VMI %s: %w", req, err)
	}
	previous, wait, err := r.strays.settlePrevious(ctx, req.NamespacedName, vmi)
	if err != nil || vmi == nil {
		return ctrl.Result{RequeueAfter: wait}, err
	}
	own, err := ownPod(ctx, r.client, vmi)
	if err != nil {
		return ctrl.Result{}, err
	}
	others, err := r.strays.endOthers(ctx, vmi)
	if err != nil {
		return ctrl.Result{}, err
	}
	result, err := r.step(ctx, vmi, own, previous)
	if err == nil {
		result.RequeueAfter = sooner(result.RequeueAfter, sooner(wait, others))
	}
	return result, err
}

// sooner returns the shorter of two times to wait, each 0 for never.
func sooner(a, b time.Duration) time.Duration {
	if a == 0 || b == 0 {
		return max(a, b)
	}
	return min(a, b)
}

// NodeDeleted notes that a Node was deleted, whose last state may be nil if that is not known.
func (r *Reconciler) NodeDeleted(name string, last *corev1.Node) {
	var state node
	if last != nil {
		state = readNode(last)
	}
	r.departures.deleted(name, state)
}

// step takes the next step for an instance, whose pod is nil if there is none. Previous
// is the pod of an earlier instance that has not ended.
func (r *Reconciler) step(
	ctx context.Context, vmi *kubevirt.VirtualMachineInstance, own *corev1.Pod, previous string,
) (ctrl.Result, error) {
	switch {
	case vmi.DeletionTimestamp != nil:
		return r.follower.remove(ctx, vmi, own)
	case own != nil:
		return r.follower.follow(ctx, vmi, own)
	case vmi.IsFinal():
		return ctrl.Result{}, nil
	case Migrating(vmi):
		return ctrl.Result{}, nil // the migration's end says which pod has the guest
	case len(vmi.Status.ActivePods) > 0:
		return r.maker.lost(ctx, vmi)
	case previous != "":
		return ctrl.Result{}, r.reports.report(ctx, vmi, view{trouble: &trouble{
			reason:  ReasonPreviousRunning,
			message: fmt.Sprintf("Pod %s of an earlier instance of this name has not ended yet.", previous),
		}})
	}
	return r.maker.create(ctx, vmi)
}

// ownPod returns the instance's pod; nil if there is none.
func ownPod(ctx context.Context, from client.Reader, vmi *kubevirt.VirtualMachineInstance) (*corev1.Pod, error) {
	return namedPod(ctx, from, vmi, pod.Current(vmi))
}

// namedPod returns the instance's pod of a name; nil if there is none.
func namedPod(ctx context.Context, from client.Reader, vmi *kubevirt.VirtualMachineInstance, name string) (*corev1.Pod, error) {
	p := new(corev1.Pod)
	key := client.ObjectKey{Namespace: vmi.Namespace, Name: name}
	switch err := from.Get(ctx, key, p); {
	case apierrors.IsNotFound(err):
		return nil, nil
	case err != nil:
		return nil, fmt.Errorf("read pod %s: %w", key, err)
	}
	if from, ours := originOf(p); !ours || from.uid != vmi.UID {
		return nil, nil
	}
	return p, nil
}

func ignoreGone(err error) error {
	if apierrors.IsNotFound(err) {
		return nil
	}
	return err
}
