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
	"github.com/nodevirt/nodevirt/tracing"
)

// maker creates the pods of instances.
type maker struct {
	client  client.Client
	live    client.Reader
	events  events.EventRecorder
	options pod.Options
	turns   *turns
	pvcs    finder
	guests  interface {
		user(ctx context.Context, vmi *kubevirt.VirtualMachineInstance, objects pod.PVCObjects) (*trouble, error)
	}
	states interface {
		pvc(ctx context.Context, vmi *kubevirt.VirtualMachineInstance) (*corev1.PersistentVolumeClaim, error)
	}
	disks interface {
		diskFinder
		targetUser(ctx context.Context, vmi *kubevirt.VirtualMachineInstance, disks pod.NetworkDisks) (*trouble, error)
	}
	cluster reader
	reports statuses
	tracing *tracing.Tracing // nil for none
}

// create is createPod with a span, which is linked to the instance's admission: an author
// may have written that trace context.
func (m *maker) create(ctx context.Context, vmi *kubevirt.VirtualMachineInstance) (ctrl.Result, error) {
	ctx, end := m.tracing.Start(ctx, tracing.Call{
		Name: "reconcile VirtualMachineInstance", Link: vmi.Annotations[tracing.Annotation],
		Attributes: tracing.Object("VirtualMachineInstance", vmi.Namespace, vmi.Name),
	})
	result, err := m.createPod(ctx, vmi)
	end(err)
	return result, err
}

// createPod creates the instance's pod, after the finalizer that keeps the instance
// until the pod is gone.
func (m *maker) createPod(ctx context.Context, vmi *kubevirt.VirtualMachineInstance) (ctrl.Result, error) {
	if !controllerutil.ContainsFinalizer(vmi, kubevirt.VirtualMachineInstanceFinalizer) {
		before := vmi.DeepCopy()
		controllerutil.AddFinalizer(vmi, kubevirt.VirtualMachineInstanceFinalizer)
		patch := client.MergeFromWithOptions(before, client.MergeFromWithOptimisticLock{})
		if err := m.client.Patch(ctx, vmi, patch); err != nil {
			return ctrl.Result{}, ignoreGone(fmt.Errorf("add finalizer to VMI %s: %w", vmi.Name, err))
		}
	}
	if may, err := mayResume(ctx, m.live, vmi); err != nil || !may {
		return ctrl.Result{RequeueAfter: turn}, err
	}
	starting := pod.AtStart(vmi)
	state, err := m.states.pvc(ctx, vmi)
	if err != nil {
		return ctrl.Result{}, errors.Join(err, m.reports.report(ctx, vmi, view{trouble: failedCreate(err)}))
	}
	keys := pvcKeys(starting)
	if state != nil {
		keys = append(keys, state.Namespace+"/"+state.Name)
	}
	end := m.turns.take(keys)
	if end == nil {
		return ctrl.Result{RequeueAfter: turn}, nil
	}
	defer end()
	objects, err := m.pvcs.pvcObjects(ctx, starting)
	if err != nil {
		return ctrl.Result{}, err
	}
	if t, err := m.pvcs.unusable(ctx, starting, objects); err != nil || t != nil {
		return m.reports.wait(ctx, vmi, t, err)
	}
	if t, err := m.guests.user(ctx, starting, objects); err != nil || t != nil {
		return m.reports.wait(ctx, vmi, t, err)
	}
	if state == nil {
		return m.createWith(ctx, vmi, objects, "")
	}
	if t, err := m.pvcs.inUse(ctx, vmi, pod.StatePVC(state.Name), state); err != nil || t != nil {
		if t != nil {
			t.poll = true // no index has this PVC
		}
		return m.reports.wait(ctx, vmi, t, err)
	}
	return m.createWith(ctx, vmi, objects, state.Name)
}

// createWith creates the pod of an instance that can use its PVCs, and has a turn with
// them. State is the name of the PVC with its persistent state, if it has any.
func (m *maker) createWith(
	ctx context.Context, vmi *kubevirt.VirtualMachineInstance, objects pod.PVCObjects, state string,
) (ctrl.Result, error) {
	network, t, err := m.disks.find(ctx, pod.AtStart(vmi), objects)
	if err != nil || t != nil {
		return m.reports.wait(ctx, vmi, t, err)
	}
	endTargets := m.turns.take(targetKeys(network))
	if endTargets == nil {
		return ctrl.Result{RequeueAfter: turn}, nil
	}
	defer endTargets()
	if t, err := m.disks.targetUser(ctx, vmi, network); err != nil || t != nil {
		return m.reports.wait(ctx, vmi, t, err)
	}
	options := m.options
	if options.Surroundings, err = m.cluster.read(ctx, vmi); err != nil { // such as of a network that is missing
		return ctrl.Result{}, errors.Join(err, m.reports.report(ctx, vmi, view{trouble: failedCreate(err)}))
	}
	options.Surroundings.StatePVC, options.Surroundings.ResumePVC = state, vmi.Annotations[pod.AnnotationResume]
	wanted, err := pod.New(vmi, objects, network, options)
	if err != nil { // a retry would fail in the same way: a change of the VMI or a PVC triggers the next attempt
		return ctrl.Result{}, m.reports.report(ctx, vmi, view{trouble: failedCreate(err)})
	}
	if text := tracing.Format(ctx); text != "" && wanted.Annotations[tracing.Annotation] == "" {
		wanted.Annotations[tracing.Annotation] = text // of an instance that was admitted without a trace
	}
	switch err := m.client.Create(ctx, wanted); {
	case apierrors.IsAlreadyExists(err):
		return m.reclaim(ctx, vmi, wanted.Name)
	case err != nil:
		failed := fmt.Errorf("create pod %s: %w", wanted.Name, err)
		if err := m.reports.report(ctx, vmi, view{trouble: failedCreate(failed)}); err != nil {
			return ctrl.Result{}, err
		}
		return ctrl.Result{}, failed
	}
	m.events.Eventf(vmi, wanted, corev1.EventTypeNormal, "SuccessfulCreate", "Create",
		"Created virtual machine pod %s", wanted.Name)
	if text := vmi.Annotations[pod.AnnotationOverridden]; text != "" {
		m.events.Eventf(vmi, nil, corev1.EventTypeNormal, string(kubevirt.Override), "Create",
			"Some settings of VirtualMachineInstancePresets were not applied, since the instance has its own: %.900s", text)
	}
	return ctrl.Result{}, nil // the pod's event triggers the next step
}

// lost handles an instance whose pod is not in the cache: the pod may only have lost
// the label by which the cache selects pods.
func (m *maker) lost(ctx context.Context, vmi *kubevirt.VirtualMachineInstance) (ctrl.Result, error) {
	p, err := ownPod(ctx, m.live, vmi)
	if err != nil {
		return ctrl.Result{}, err
	}
	if p != nil {
		return m.reclaim(ctx, vmi, p.Name)
	}
	return ctrl.Result{}, m.reports.report(ctx, vmi, view{gone: true})
}

// reclaim restores a pod's label, so that the cache finds it.
func (m *maker) reclaim(
	ctx context.Context, vmi *kubevirt.VirtualMachineInstance, name string,
) (ctrl.Result, error) {
	p, err := ownPod(ctx, m.live, vmi)
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
	if err := m.client.Patch(ctx, p, client.MergeFrom(before)); err != nil {
		return ctrl.Result{}, fmt.Errorf("label pod %s: %w", name, err)
	}
	return ctrl.Result{}, nil
}
