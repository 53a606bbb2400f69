package vmi

import (
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	kubevirt "kubevirt.io/api/core/v1"
)

// ReasonNodeUnresponsive is in the status of an instance of a lost node.
const ReasonNodeUnresponsive = "NodeUnresponsive"

// Reasons in the status of an instance that others ended.
const (
	ReasonPodDeleted       = "PodDeleted"
	ReasonNodeGone         = "NodeGone"
	ReasonNodeOutOfService = "NodeOutOfService"
)

// Disrupted tells whether an instance ended, or is to end, by what others did: it
// was deleted, its pod was deleted or evicted, its node is gone. That says nothing
// about how the next one will fare.
func Disrupted(vmi *kubevirt.VirtualMachineInstance) bool {
	return vmi.DeletionTimestamp != nil ||
		slices.Contains([]string{ReasonPodDeleted, ReasonNodeGone, ReasonNodeOutOfService}, vmi.Status.Reason)
}

// disrupted: the guest, which ran, ended after its pod was deleted.
func (v view) disrupted() bool {
	c := v.compute()
	return v.ended() && v.pod.DeletionTimestamp != nil && c != nil && c.Terminated != nil
}

// disruption says who deleted the pod, where that is known: drains, taints,
// preemption by other pods.
func (v view) disruption() string {
	if c := conditionOf(v.pod, corev1.DisruptionTarget); c != nil && c.Status == corev1.ConditionTrue {
		return fmt.Sprintf("its pod was deleted: %s: %s", c.Reason, c.Message)
	}
	return "its pod was deleted."
}
