package vmi

import (
	"fmt"

	corev1 "k8s.io/api/core/v1"
	kubevirt "kubevirt.io/api/core/v1"

	"github.com/nodevirt/nodevirt/controller/pod"
	"github.com/nodevirt/nodevirt/shim/podstatus/condition"
)

// ReasonGuestElsewhere is the reason in the status of an instance whose node says that a migration has taken the guest to
// another node, of which the API server knows nothing, as after a restore of etcd.
const ReasonGuestElsewhere = "GuestElsewhere"

// departed returns where the guest of an instance's own pod has gone; nil for a pod that has it, and for a migration whose
// end the instance has on record. Such an end is no power-off: a start would make a second guest.
func departed(vmi *kubevirt.VirtualMachineInstance, p *corev1.Pod) *condition.Departure {
	if p.Name != pod.Current(vmi) || Migrating(vmi) {
		return nil
	}
	d, ok := departureOf(p)
	if !ok {
		return nil
	}
	m := vmi.Status.MigrationState
	known := m != nil && m.EndTimestamp != nil &&
		(d.Migration == string(m.MigrationUID) || d.Migration == "" && m.SourcePod == p.Name)
	if known {
		return nil
	}
	return &d
}

// departureOf returns where a migration has taken a pod's guest. The end of the container says it or, if that was removed, the
// node's condition.
func departureOf(p *corev1.Pod) (condition.Departure, bool) {
	v := view{pod: p}
	if c := v.compute(); c != nil && c.Terminated != nil && !v.missing() {
		return condition.ParseDeparture(c.Terminated.Reason, c.Terminated.Message)
	}
	if c := conditionOf(p, condition.VMReady); c != nil && c.Status == corev1.ConditionFalse {
		return condition.ParseDeparture(c.Reason, c.Message)
	}
	return condition.Departure{}, false
}

// elsewhere says where the guest of an instance is, and what to do.
func (v view) elsewhere() string {
	const remedy = "The API server knows no such migration; was etcd restored from a backup? Nothing is started meanwhile. " +
		"End the guest there if it runs (see \"Restore etcd\" in the documentation), then delete this instance or restart its VM."
	return fmt.Sprintf("Node %s says that %s. %s", v.pod.Spec.NodeName, v.away.Message(), remedy)
}
