package restore

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	api "kubevirt.io/api/snapshot/v1beta1"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

func asWait(err error, into **waitError) bool { return errors.As(err, into) }

// Outcome returns whether a restore is complete, and why it has failed; "" if it has not.
func Outcome(rs *api.VirtualMachineRestore) (complete bool, failure string) {
	if rs.Status == nil {
		return false, ""
	}
	for _, c := range rs.Status.Conditions {
		if c.Type == api.ConditionFailure && c.Status == corev1.ConditionTrue {
			failure = c.Reason
		}
	}
	return rs.Status.Complete != nil && *rs.Status.Complete, failure
}

// ended reports whether a restore is complete or has failed.
func ended(rs *api.VirtualMachineRestore) bool {
	complete, failure := Outcome(rs)
	return complete || failure != ""
}

// says reports whether a restore's status has a reason.
func says(rs *api.VirtualMachineRestore, reason string) bool {
	return rs.Status != nil && slices.ContainsFunc(rs.Status.Conditions, func(c api.Condition) bool { return c.Reason == reason })
}

// progress reports how far a restore is; [reporter].
type progress interface {
	report(ctx context.Context, w *work, progressing corev1.ConditionStatus, reason string) error
}

// reporter writes the statuses of restores.
type reporter struct {
	client client.Client
	now    func() time.Time
}

// report writes the status, with what the restore does or waits for.
func (r *reporter) report(ctx context.Context, w *work, progressing corev1.ConditionStatus, reason string) error {
	ready := corev1.ConditionFalse
	if c := w.rs.Status.Complete; c == nil {
		w.rs.Status.Complete = new(bool)
	} else if *c {
		ready = corev1.ConditionTrue
	}
	r.condition(w.rs, api.ConditionProgressing, progressing, reason)
	r.condition(w.rs, api.ConditionReady, ready, reason)
	return r.write(ctx, w)
}

// fail gives up.
func (r *reporter) fail(ctx context.Context, w *work, reason string) error {
	r.condition(w.rs, api.ConditionFailure, corev1.ConditionTrue, reason)
	return r.report(ctx, w, corev1.ConditionFalse, "Operation failed")
}

func (r *reporter) write(ctx context.Context, w *work) error {
	if equality.Semantic.DeepEqual(w.was.Status, w.rs.Status) {
		return nil
	}
	p := client.MergeFromWithOptions(w.was, client.MergeFromWithOptimisticLock{})
	if err := r.client.Status().Patch(ctx, w.rs, p); err != nil {
		return client.IgnoreNotFound(fmt.Errorf("write status of restore %s/%s: %w", w.rs.Namespace, w.rs.Name, err))
	}
	w.was = w.rs.DeepCopy()
	return nil
}

// condition sets a condition; KubeVirt has its sentence as the reason.
func (r *reporter) condition(rs *api.VirtualMachineRestore, kind api.ConditionType, status corev1.ConditionStatus, reason string) {
	for i := range rs.Status.Conditions {
		if c := &rs.Status.Conditions[i]; c.Type == kind {
			if c.Status != status {
				c.LastTransitionTime = metav1.NewTime(r.now())
			}
			c.Status, c.Reason = status, reason
			return
		}
	}
	rs.Status.Conditions = append(rs.Status.Conditions, api.Condition{
		Type: kind, Status: status, Reason: reason, LastTransitionTime: metav1.NewTime(r.now()),
	})
}
