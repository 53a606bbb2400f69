package replicaset

import (
	"time"

	corev1 "k8s.io/api/core/v1"
	kubevirt "kubevirt.io/api/core/v1"

	"github.com/nodevirt/nodevirt/controller/backoff"
	"github.com/nodevirt/nodevirt/controller/replicas"
)

// plan is what a replica set needs next.
type plan struct {
	// active are the instances that count as replicas and stay.
	active []*instance
	// missing is how many instances to make.
	missing int
	// remove are those to delete: ended ones, those that leave their node, and what
	// is more than is wanted.
	remove []*instance
	// held are instances that ended early: each keeps a place until its successor
	// is due.
	held []*instance
}

// decide says what a replica set needs whose instances are as given. An instance
// that ended early stays while there is a wait for its successor. It is pure.
func decide(set *replicaSet, all []*instance, wait bool, now time.Time) plan {
	var p plan
	for _, vmi := range all {
		switch {
		case vmi.DeletionTimestamp != nil: // on its way out, and no replica any more
		case wait && backoff.EndedEarly(vmi, now):
			p.held = append(p.held, vmi)
		case vmi.IsFinal() || leaves(vmi):
			p.remove = append(p.remove, vmi)
		default:
			p.active = append(p.active, vmi)
		}
	}
	if set.Spec.Paused || set.DeletionTimestamp != nil {
		return plan{active: p.active}
	}
	room := replicas.Wanted(set.Spec.Replicas) - len(p.active)
	if room < 0 {
		order(p.active)
		p.remove = append(p.remove, p.active[:-room]...)
		p.active, room = p.active[-room:], 0
	}
	if surplus := len(p.held) - room; surplus > 0 {
		p.remove = append(p.remove, p.held[:surplus]...)
		p.held = p.held[surplus:]
	}
	p.missing = room - len(p.held)
	return p
}

// leaves reports whether an instance's pod was deleted or evicted: the instance can
// only end, and its replacement need not wait for that.
func leaves(vmi *instance) bool {
	c := readiness(vmi)
	return c != nil && c.Status == corev1.ConditionFalse && c.Reason == kubevirt.PodTerminatingReason
}

func isReady(vmi *instance) bool {
	c := readiness(vmi)
	return c != nil && c.Status == corev1.ConditionTrue
}

func readiness(vmi *instance) *kubevirt.VirtualMachineInstanceCondition {
	for i := range vmi.Status.Conditions {
		if vmi.Status.Conditions[i].Type == kubevirt.VirtualMachineInstanceReady {
			return &vmi.Status.Conditions[i]
		}
	}
	return nil
}
