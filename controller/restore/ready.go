package restore

import (
	"context"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	kubevirt "kubevirt.io/api/core/v1"
	api "kubevirt.io/api/snapshot/v1beta1"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// unready waits until the target has stopped, stops it, or gives up, as the restore's
// policy says.
func (r *Reconciler) unready(ctx context.Context, w *work) (ctrl.Result, error) {
	policy := api.VirtualMachineRestoreWaitGracePeriodAndFail
	if p := w.rs.Spec.TargetReadinessPolicy; p != nil {
		policy = *p
	}
	again := time.Duration(0)
	switch policy {
	case api.VirtualMachineRestoreFailImmediate:
		return ctrl.Result{}, r.statuses.fail(ctx, w, "Restore target not ready")
	case api.VirtualMachineRestoreStopTarget:
		if err := r.stop(ctx, w); err != nil {
			return ctrl.Result{}, err
		}
	case api.VirtualMachineRestoreWaitGracePeriodAndFail:
		again = w.rs.CreationTimestamp.Add(api.DefaultGracePeriod).Sub(r.now())
		if again < 0 {
			return ctrl.Result{}, r.statuses.fail(ctx, w, fmt.Sprintf("Restore target failed to be ready within %s", api.DefaultGracePeriod))
		}
		again += time.Millisecond
	}
	const waits = "Waiting for target to be ready"
	if !says(w.was, waits) {
		r.events.Eventf(w.rs, nil, corev1.EventTypeWarning, "RestoreTargetNotReady", "Restore",
			"VM %s must be powered off before it can be restored", w.rs.Spec.Target.Name)
	}
	return ctrl.Result{RequeueAfter: again}, r.statuses.report(ctx, w, corev1.ConditionFalse, waits)
}

// stop stops the target, as virtctl stop does.
func (r *Reconciler) stop(ctx context.Context, w *work) error {
	if w.vm == nil || w.vmi.DeletionTimestamp != nil {
		return nil
	}
	strategy, err := w.vm.RunStrategy()
	if err != nil || strategy == kubevirt.RunStrategyHalted {
		return err
	}
	before := w.vm.DeepCopy()
	p := client.MergeFromWithOptions(before, client.MergeFromWithOptimisticLock{})
	if strategy == kubevirt.RunStrategyManual || strategy == kubevirt.RunStrategyRerunOnFailure {
		if len(w.vm.Status.StateChangeRequests) > 0 {
			return nil
		}
		w.vm.Status.StateChangeRequests = []kubevirt.VirtualMachineStateChangeRequest{{Action: kubevirt.StopRequest, UID: &w.vmi.UID}}
		err = r.client.Status().Patch(ctx, w.vm, p)
	} else {
		if w.vm.Spec.Running != nil {
			w.vm.Spec.Running = new(bool)
		} else {
			halted := kubevirt.RunStrategyHalted
			w.vm.Spec.RunStrategy = &halted
		}
		err = r.client.Patch(ctx, w.vm, p)
	}
	if err != nil {
		return fmt.Errorf("stop VM %s/%s: %w", w.vm.Namespace, w.vm.Name, err)
	}
	return nil
}
