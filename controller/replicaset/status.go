package replicaset

import (
	"context"
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	kubevirt "kubevirt.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/nodevirt/nodevirt/controller/replicas"
)

// outcome is all that a replica set's status is made of.
type outcome struct {
	plan
	made     int
	selector labels.Selector // nil if it isn't sound
	failure  *failure        // nil for none
}

// failure is why there are not as many replicas as wanted.
type failure struct {
	reason string
	error
}

// report writes the replica set's status, if it has changed.
func (r *Reconciler) report(ctx context.Context, set *replicaSet, o outcome) error {
	next := status(set, o, r.Now())
	if equality.Semantic.DeepEqual(next, set.Status) {
		return nil
	}
	before := set.DeepCopy()
	set.Status = next
	patch := client.MergeFromWithOptions(before, client.MergeFromWithOptimisticLock{})
	if err := r.Client.Status().Patch(ctx, set, patch); err != nil {
		return client.IgnoreNotFound(fmt.Errorf("write status of VMI replica set %s/%s: %w", set.Namespace, set.Name, err))
	}
	replicas.ReportPause(r.Events, set, find(before.Status.Conditions, paused) != nil, find(next.Conditions, paused) != nil)
	return nil
}

type cond = kubevirt.VirtualMachineInstanceReplicaSetCondition

const (
	paused  = kubevirt.VirtualMachineInstanceReplicaSetReplicaPaused
	failing = kubevirt.VirtualMachineInstanceReplicaSetReplicaFailure
)

// status returns the replica set's status after an outcome. It is pure.
func status(set *replicaSet, o outcome, now time.Time) kubevirt.VirtualMachineInstanceReplicaSetStatus {
	s := kubevirt.VirtualMachineInstanceReplicaSetStatus{Replicas: int32(len(o.active) + o.made)}
	for _, vmi := range o.active {
		if isReady(vmi) {
			s.ReadyReplicas++
		}
	}
	if o.selector != nil {
		s.LabelSelector = o.selector.String()
	}
	add := func(kind kubevirt.VirtualMachineInstanceReplicaSetConditionType, reason, message string) {
		c := cond{Type: kind, Status: corev1.ConditionTrue, Reason: reason, Message: message, LastTransitionTime: metav1.NewTime(now)}
		if have := find(set.Status.Conditions, kind); have != nil {
			c.LastTransitionTime = have.LastTransitionTime
		}
		s.Conditions = append(s.Conditions, c)
	}
	if set.Spec.Paused {
		add(paused, "Paused", "Controller got paused")
	}
	if o.failure != nil {
		add(failing, o.failure.reason, o.failure.Error())
	}
	return s
}

func find(all []cond, kind kubevirt.VirtualMachineInstanceReplicaSetConditionType) *cond {
	at := slices.IndexFunc(all, func(c cond) bool { return c.Type == kind })
	if at < 0 {
		return nil
	}
	return &all[at]
}
