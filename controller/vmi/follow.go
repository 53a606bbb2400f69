package vmi

import (
	"context"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/tools/events"
	kubevirt "kubevirt.io/api/core/v1"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"

	"github.com/nodevirt/nodevirt/controller/config"
	"github.com/nodevirt/nodevirt/controller/pod"
)

// follower follows an instance's pod, until it has released both.
type follower struct {
	client client.Client
	live   client.Reader
	events events.EventRecorder
	now    func() time.Time
	config config.Source
	views  interface {
		viewer
		unhealthy(ctx context.Context, vmi *kubevirt.VirtualMachineInstance, v view) (bool, error)
		troubleInEvents(ctx context.Context, p *corev1.Pod) (*trouble, error)
	}
	pvcs interface {
		pvcObjects(ctx context.Context, vmi *kubevirt.VirtualMachineInstance) (pod.PVCObjects, error)
		addState(ctx context.Context, p *corev1.Pod, all pod.PVCObjects) error
		beingFilled(ctx context.Context, vmi *kubevirt.VirtualMachineInstance) (cdi *trouble, unwritten string, err error)
		markFilled(ctx context.Context, vmi *kubevirt.VirtualMachineInstance, pvcs pod.PVCObjects) error
	}
	ends  ender
	maker interface {
		reclaim(ctx context.Context, vmi *kubevirt.VirtualMachineInstance, name string) (ctrl.Result, error)
	}
	strays interface {
		othersExist(ctx context.Context, vmi *kubevirt.VirtualMachineInstance) (bool, error)
	}
	overdue interface {
		end(ctx context.Context, vmi *kubevirt.VirtualMachineInstance, v view) (time.Duration, error)
	}
	offers interface {
		unmet(ctx context.Context, vmi *kubevirt.VirtualMachineInstance, p *corev1.Pod) (string, error)
	}
	cards interface {
		trouble(ctx context.Context, vmi *kubevirt.VirtualMachineInstance, p *corev1.Pod) (string, time.Duration, error)
	}
	networks interface {
		ownAddress(ctx context.Context, vmi *kubevirt.VirtualMachineInstance) (string, error)
	}
	missing interface{ wait(v view) time.Duration }
	resizer interface {
		resize(ctx context.Context, vmi *kubevirt.VirtualMachineInstance, v *view) (time.Duration, error)
	}
	reports statuses
}

// follow reports the pod's state in the instance's status, and releases an ended pod.
func (f *follower) follow(
	ctx context.Context, vmi *kubevirt.VirtualMachineInstance, p *corev1.Pod,
) (ctrl.Result, error) {
	v, err := f.views.look(ctx, p)
	if err != nil {
		return ctrl.Result{}, err
	}
	if v.ended() && Migrating(vmi) && vmi.DeletionTimestamp == nil {
		return ctrl.Result{}, nil // the guest may run on the target: the migration's end says so
	}
	if vmi.DeletionTimestamp == nil {
		if v.away = departed(vmi, p); v.away != nil {
			return ctrl.Result{}, f.reports.report(ctx, vmi, v) // the pod keeps its finalizer, and with it what it says
		}
	}
	if wait := f.missing.wait(v); wait > 0 && vmi.DeletionTimestamp == nil && !vmi.IsFinal() {
		v.waits = true
		return ctrl.Result{RequeueAfter: wait}, f.reports.report(ctx, vmi, v)
	}
	if wait := v.unheard(f.now()); wait > 0 {
		return ctrl.Result{RequeueAfter: wait}, nil
	}
	due, next := v.lookAgain(f.now())
	if due {
		if v.trouble, err = f.views.troubleInEvents(ctx, p); err != nil {
			return ctrl.Result{}, err
		}
	}
	wait, err := f.beforeStart(ctx, vmi, &v)
	if err != nil {
		return ctrl.Result{}, err
	}
	next = sooner(next, wait)
	if wait, err = f.whileRunning(ctx, vmi, &v); err != nil {
		return ctrl.Result{}, err
	}
	next = sooner(next, wait)
	if v.unhealthy, err = f.views.unhealthy(ctx, vmi, v); err != nil {
		return ctrl.Result{}, err
	}
	if err := f.label(ctx, vmi, p); err != nil {
		return ctrl.Result{}, err
	}
	if err := f.annotate(ctx, vmi, p); err != nil {
		return ctrl.Result{}, err
	}
	if wait, err = f.resizer.resize(ctx, vmi, &v); err != nil {
		return ctrl.Result{}, err
	}
	next = sooner(next, wait)
	if err := f.reports.report(ctx, vmi, v); err != nil {
		return ctrl.Result{}, err
	}
	if vmi.DeletionTimestamp != nil && v.ended() && controllerutil.ContainsFinalizer(p, pod.Finalizer) {
		f.events.Eventf(vmi, p, corev1.EventTypeNormal, kubevirt.Deleted.String(), "Delete", "Signaled Deletion")
	}
	if err := f.ends.release(ctx, v); err != nil { // only now: the end is on record
		return ctrl.Result{}, err
	}
	wait, err = f.overdue.end(ctx, vmi, v)
	return ctrl.Result{RequeueAfter: sooner(sooner(next, v.again), wait)}, err
}

// beforeStart finds out what a guest that has not started waits for, as far as the pod does not say it. It returns when to
// look again; 0 for never.
func (f *follower) beforeStart(ctx context.Context, vmi *kubevirt.VirtualMachineInstance, v *view) (wait time.Duration, err error) {
	if v.running() || v.ended() {
		return 0, nil
	}
	if v.unfilled, v.unwritten, err = f.pvcs.beingFilled(ctx, vmi); err != nil {
		return 0, err
	}
	if v.unfilled != nil {
		wait = pollDataVolume // no event comes of a DataVolume
	}
	if v.unmet, err = f.offers.unmet(ctx, vmi, v.pod); err != nil {
		return 0, err
	}
	if v.unmet != "" {
		wait = sooner(wait, offersAge) // a node may get the label
	}
	return wait, nil
}

// whileRunning finds out what the status of a running guest needs, and notes which PVCs the guest has. It returns when to
// look again; 0 for never.
func (f *follower) whileRunning(ctx context.Context, vmi *kubevirt.VirtualMachineInstance, v *view) (wait time.Duration, err error) {
	if !v.running() {
		return 0, nil
	}
	if v.pvcs, err = f.pvcs.pvcObjects(ctx, vmi); err != nil {
		return 0, err
	}
	if v.ownAddress, err = f.networks.ownAddress(ctx, vmi); err != nil {
		return 0, err
	}
	if err := f.pvcs.addState(ctx, v.pod, v.pvcs); err != nil {
		return 0, err
	}
	if err := f.pvcs.markFilled(ctx, pod.AsStarted(vmi, v.pod), v.pvcs); err != nil {
		return 0, err
	}
	v.cardTrouble, wait, err = f.cards.trouble(ctx, vmi, v.pod)
	return wait, err
}

// remove ends the guest of a deleted instance, and then releases the instance.
func (f *follower) remove(
	ctx context.Context, vmi *kubevirt.VirtualMachineInstance, p *corev1.Pod,
) (ctrl.Result, error) {
	if p == nil {
		return f.forget(ctx, vmi)
	}
	if p.DeletionTimestamp == nil {
		time := pod.GracePeriod(vmi.Spec.TerminationGracePeriodSeconds)
		if err := f.ends.deletePod(ctx, p, client.GracePeriodSeconds(time)); err != nil {
			return ctrl.Result{}, err
		}
		f.events.Eventf(vmi, p, corev1.EventTypeNormal, "SuccessfulDelete", "Delete",
			"Deleted virtual machine pod %s", p.Name)
		if v := (view{pod: p}); v.running() && !v.completed() && time > 0 {
			f.events.Eventf(vmi, p, corev1.EventTypeNormal, kubevirt.ShuttingDown.String(), "Delete", "Signaled Graceful Shutdown")
		}
		return ctrl.Result{}, nil // the pod's event triggers the next step
	}
	return f.follow(ctx, vmi, p)
}

// forget removes the finalizer of an instance whose pod is really gone.
func (f *follower) forget(ctx context.Context, vmi *kubevirt.VirtualMachineInstance) (ctrl.Result, error) {
	if !controllerutil.ContainsFinalizer(vmi, kubevirt.VirtualMachineInstanceFinalizer) {
		return ctrl.Result{}, nil
	}
	p, err := ownPod(ctx, f.live, vmi)
	if err != nil {
		return ctrl.Result{}, err
	}
	if p != nil {
		return f.maker.reclaim(ctx, vmi, p.Name)
	}
	if there, err := f.strays.othersExist(ctx, vmi); err != nil || there {
		return ctrl.Result{}, err // their events trigger the next step
	}
	before := vmi.DeepCopy()
	controllerutil.RemoveFinalizer(vmi, kubevirt.VirtualMachineInstanceFinalizer)
	patch := client.MergeFromWithOptions(before, client.MergeFromWithOptimisticLock{})
	if err := f.client.Patch(ctx, vmi, patch); err != nil {
		return ctrl.Result{}, ignoreGone(fmt.Errorf("remove finalizer from VMI %s: %w", vmi.Name, err))
	}
	return ctrl.Result{}, nil
}
