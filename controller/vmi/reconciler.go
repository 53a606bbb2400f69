package vmi

import (
	"context"
	"errors"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/client-go/tools/events"
	kubevirt "kubevirt.io/api/core/v1"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"

	"github.com/nodevirt/nodevirt/controller/pod"
)

// Reconciler creates and follows the pods of instances.
type Reconciler struct {
	// Client reads from the cache and must wait there for its own writes.
	Client client.Client
	// Live reads from the API server.
	Live client.Reader
	// Events reach the users of instances.
	Events events.EventRecorder
	// DataVolumes reads CDI's objects.
	DataVolumes DataVolumes
	// NetworkDisks has nodes' QEMU open PVCs on iSCSI and RBD over the network.
	NetworkDisks bool
	// Pods are the options of the pods that are made.
	Pods pod.Options
	// Now is the time; a test may have its own.
	Now func() time.Time

	turns turns
}

// Reconcile takes the next step for the instance of a name, or for the pods that an
// instance of that name has left.
func (r *Reconciler) Reconcile(ctx context.Context, req ctrl.Request) (ctrl.Result, error) {
	vmi := new(kubevirt.VirtualMachineInstance)
	if err := r.Client.Get(ctx, req.NamespacedName, vmi); apierrors.IsNotFound(err) {
		vmi = nil
	} else if err != nil {
		return ctrl.Result{}, fmt.Errorf("read VMI %s: %w", req, err)
	}
	previous, err := r.settlePrevious(ctx, req.NamespacedName, vmi)
	if err != nil || vmi == nil {
		return ctrl.Result{}, err
	}
	own, err := r.ownPod(ctx, vmi)
	if err != nil {
		return ctrl.Result{}, err
	}
	wait, err := r.endOthers(ctx, vmi)
	if err != nil {
		return ctrl.Result{}, err
	}
	result, err := r.step(ctx, vmi, own, previous)
	if err == nil && wait > 0 && (result.RequeueAfter == 0 || wait < result.RequeueAfter) {
		result.RequeueAfter = wait
	}
	return result, err
}

// step takes the next step for an instance, whose pod is nil if there is none. Previous
// is the pod of an earlier instance that has not ended.
func (r *Reconciler) step(
	ctx context.Context, vmi *kubevirt.VirtualMachineInstance, own *corev1.Pod, previous string,
) (ctrl.Result, error) {
	switch {
	case vmi.DeletionTimestamp != nil:
		return r.remove(ctx, vmi, own)
	case own != nil:
		return r.follow(ctx, vmi, own)
	case vmi.IsFinal():
		return ctrl.Result{}, nil
	case Migrating(vmi):
		return ctrl.Result{}, nil // the migration's end says which pod has the guest
	case len(vmi.Status.ActivePods) > 0:
		return r.lost(ctx, vmi)
	case previous != "":
		return ctrl.Result{}, r.report(ctx, vmi, view{trouble: &trouble{
			reason:  "PreviousInstanceRunning",
			message: fmt.Sprintf("Pod %s of an earlier instance of this name has not ended yet.", previous),
		}})
	}
	return r.create(ctx, vmi)
}

// ownPod returns the instance's pod in the cache; nil if there is none.
func (r *Reconciler) ownPod(ctx context.Context, vmi *kubevirt.VirtualMachineInstance) (*corev1.Pod, error) {
	return ownPod(ctx, r.Client, vmi)
}

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

// create creates the instance's pod, after the finalizer that keeps the instance
// until the pod is gone.
func (r *Reconciler) create(ctx context.Context, vmi *kubevirt.VirtualMachineInstance) (ctrl.Result, error) {
	before := vmi.DeepCopy()
	if controllerutil.AddFinalizer(vmi, kubevirt.VirtualMachineInstanceFinalizer) {
		patch := client.MergeFromWithOptions(before, client.MergeFromWithOptimisticLock{})
		if err := r.Client.Patch(ctx, vmi, patch); err != nil {
			return ctrl.Result{}, ignoreGone(fmt.Errorf("add finalizer to VMI %s: %w", vmi.Name, err))
		}
	}
	starting := pod.AtStart(vmi)
	end := r.turns.take(pvcKeys(starting))
	if end == nil {
		return ctrl.Result{RequeueAfter: turn}, nil
	}
	defer end()
	objects, err := r.pvcObjects(ctx, starting)
	if err != nil {
		return ctrl.Result{}, err
	}
	if t, err := r.unusable(ctx, starting, objects); err != nil || t != nil {
		return r.wait(ctx, vmi, t, err)
	}
	return r.createWith(ctx, vmi, objects)
}

// createWith creates the pod of an instance that can use its PVCs, and has a turn with
// them.
func (r *Reconciler) createWith(ctx context.Context, vmi *kubevirt.VirtualMachineInstance, objects pod.PVCObjects) (ctrl.Result, error) {
	network, t, err := r.networkDisks(ctx, pod.AtStart(vmi), objects)
	if err != nil || t != nil {
		return r.wait(ctx, vmi, t, err)
	}
	endTargets := r.turns.take(targetKeys(network))
	if endTargets == nil {
		return ctrl.Result{RequeueAfter: turn}, nil
	}
	defer endTargets()
	if t, err := r.targetUser(ctx, vmi, network); err != nil || t != nil {
		return r.wait(ctx, vmi, t, err)
	}
	options := r.Pods
	if options.Surroundings, err = r.surroundings(ctx, vmi); err != nil { // such as of a network that is missing
		return ctrl.Result{}, errors.Join(err, r.report(ctx, vmi, view{trouble: failedCreate(err)}))
	}
	wanted, err := pod.New(vmi, objects, network, options)
	if err != nil { // a retry would fail in the same way: a change of the VMI or a PVC triggers the next attempt
		return ctrl.Result{}, r.report(ctx, vmi, view{trouble: failedCreate(err)})
	}
	switch err := r.Client.Create(ctx, wanted); {
	case apierrors.IsAlreadyExists(err):
		return r.reclaim(ctx, vmi, wanted.Name)
	case err != nil:
		failed := fmt.Errorf("create pod %s: %w", wanted.Name, err)
		if err := r.report(ctx, vmi, view{trouble: failedCreate(failed)}); err != nil {
			return ctrl.Result{}, err
		}
		return ctrl.Result{}, failed
	}
	r.Events.Eventf(vmi, wanted, corev1.EventTypeNormal, "SuccessfulCreate", "Create",
		"Created virtual machine pod %s", wanted.Name)
	if text := vmi.Annotations[pod.AnnotationOverridden]; text != "" {
		r.Events.Eventf(vmi, nil, corev1.EventTypeNormal, string(kubevirt.Override), "Create",
			"Some settings of VirtualMachineInstancePresets were not applied, since the instance has its own: %.900s", text)
	}
	return ctrl.Result{}, nil // the pod's event triggers the next step
}

// lost handles an instance whose pod is not in the cache: the pod may only have lost
// the label by which the cache selects pods.
func (r *Reconciler) lost(ctx context.Context, vmi *kubevirt.VirtualMachineInstance) (ctrl.Result, error) {
	p, err := ownPod(ctx, r.Live, vmi)
	if err != nil {
		return ctrl.Result{}, err
	}
	if p != nil {
		return r.reclaim(ctx, vmi, p.Name)
	}
	return ctrl.Result{}, r.report(ctx, vmi, view{gone: true})
}

// reclaim restores a pod's label, so that the cache finds it.
func (r *Reconciler) reclaim(
	ctx context.Context, vmi *kubevirt.VirtualMachineInstance, name string,
) (ctrl.Result, error) {
	p, err := ownPod(ctx, r.Live, vmi)
	if err != nil {
		return ctrl.Result{}, err
	}
	if p == nil {
		return ctrl.Result{}, fmt.Errorf("pod %s/%s is not of VMI %s: remove it", vmi.Namespace, name, vmi.Name)
	}
	if p.Labels[kubevirt.AppLabel] == pod.LabelValue {
		return ctrl.Result{RequeueAfter: time.Second}, nil // the cache will have it
	}
	before := p.DeepCopy()
	if p.Labels == nil {
		p.Labels = map[string]string{}
	}
	p.Labels[kubevirt.AppLabel] = pod.LabelValue
	if err := r.Client.Patch(ctx, p, client.MergeFrom(before)); err != nil {
		return ctrl.Result{}, fmt.Errorf("label pod %s: %w", name, err)
	}
	return ctrl.Result{}, nil
}

func ignoreGone(err error) error {
	if apierrors.IsNotFound(err) {
		return nil
	}
	return err
}
