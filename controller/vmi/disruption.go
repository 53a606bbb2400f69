package vmi

import (
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	kubevirt "kubevirt.io/api/core/v1"
)

// Reasons in the status of an instance whose guest may run.
const (
	// ReasonNodeUnresponsive is of an instance of a lost node.
	ReasonNodeUnresponsive = "NodeUnresponsive"
	// ReasonNodeDeleted is of one whose Node was deleted, which proves nothing about its guests.
	ReasonNodeDeleted = "NodeDeleted"
)

// Reasons in the status of an instance that did not end by itself.
const (
	ReasonPodDeleted       = "PodDeleted"
	ReasonNodeGone         = "NodeGone"
	ReasonNodeOutOfService = "NodeOutOfService"
)

// Disrupted reports whether an instance ended, or will end, for a reason outside its
// guest: the instance or its pod was deleted or evicted, or its node is gone. Such an
// end does not predict how the next start goes.
func Disrupted(vmi *kubevirt.VirtualMachineInstance) bool {
	return vmi.DeletionTimestamp != nil ||
		slices.Contains([]string{ReasonPodDeleted, ReasonNodeGone, ReasonNodeOutOfService}, vmi.Status.Reason)
}

// disrupted: the guest, which ran, ended after its pod was deleted.
func (v view) disrupted() bool {
	c := v.compute()
	if c == nil || v.pod.DeletionTimestamp == nil {
		return false
	}
	return v.ended() && c.Terminated != nil || v.running() && v.completed()
}

// disruption says why the pod was deleted, if that is known: a drain, a taint, or
// preemption by other pods.
func (v view) disruption() string {
	if c := conditionOf(v.pod, corev1.DisruptionTarget); c != nil && c.Status == corev1.ConditionTrue {
		return fmt.Sprintf("its pod was deleted: %s: %s", c.Reason, c.Message)
	}
	return "its pod was deleted."
}
