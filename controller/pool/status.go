package pool

import (
	"context"
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	api "kubevirt.io/api/pool/v1beta1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/nodevirt/nodevirt/controller/replicas"
)

// report writes the pool's status, if it has changed.
func (r *Reconciler) report(ctx context.Context, w *work) error {
	pool := w.pool
	next := status(w, r.now())
	if equality.Semantic.DeepEqual(next, pool.Status) {
		return nil
	}
	before := pool.DeepCopy()
	pool.Status = next
	patch := client.MergeFromWithOptions(before, client.MergeFromWithOptimisticLock{})
	if err := r.client.Status().Patch(ctx, pool, patch); err != nil {
		return client.IgnoreNotFound(fmt.Errorf("write status of pool %s/%s: %w", pool.Namespace, pool.Name, err))
	}
	replicas.ReportPause(r.events, pool, find(before.Status.Conditions, paused) != nil, find(next.Conditions, paused) != nil)
	return nil
}

type cond = api.VirtualMachinePoolCondition

const (
	paused = api.VirtualMachinePoolReplicaPaused
	failed = api.VirtualMachinePoolReplicaFailure
)

// status returns the pool's status after a reconciliation. It is pure.
func status(w *work, now time.Time) api.VirtualMachinePoolStatus {
	s := api.VirtualMachinePoolStatus{Replicas: int32(len(w.active) + w.made)}
	for _, m := range w.active {
		if m.vm.Status.Ready {
			s.ReadyReplicas++
		}
	}
	if w.selector != nil {
		s.LabelSelector = w.selector.String()
	}
	add := func(kind api.VirtualMachinePoolConditionType, reason, message string) {
		c := cond{Type: kind, Status: corev1.ConditionTrue, Reason: reason, Message: message, LastTransitionTime: metav1.NewTime(now)}
		if have := find(w.pool.Status.Conditions, kind); have != nil {
			c.LastTransitionTime = have.LastTransitionTime
		}
		s.Conditions = append(s.Conditions, c)
	}
	if w.pool.Spec.Paused {
		add(paused, "Paused", "Controller got paused")
	}
	if w.failure != nil {
		add(failed, w.failure.reason, w.failure.Error())
	}
	return s
}

func find(all []cond, kind api.VirtualMachinePoolConditionType) *cond {
	at := slices.IndexFunc(all, func(c cond) bool { return c.Type == kind })
	if at < 0 {
		return nil
	}
	return &all[at]
}
