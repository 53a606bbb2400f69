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
	c := (view{pod: p}).compute()
	if c == nil || c.Terminated == nil || p.Name != pod.Current(vmi) {
		return nil
	}
	d, ok := condition.ParseDeparture(c.Terminated.Reason, c.Terminated.Message)
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

// elsewhere says where the guest of an instance is, and what to do.
func (v view) elsewhere() string {
	const remedy = "The API server knows no such migration; was etcd restored from a backup? Nothing is started meanwhile. " +
		"End the guest there if it runs (see \"Restore etcd\" in the documentation), then delete this instance or restart its VM."
	return fmt.Sprintf("Node %s says that %s. %s", v.pod.Spec.NodeName, v.away.Message(), remedy)
}
