package vmi

import (
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/nodevirt/nodevirt/shim/podstatus/condition"
)

// trouble is what keeps a guest from running, in the words of its source.
type trouble struct {
	reason, message string
	// unschedulable says that the scheduler would refuse the pod. KubeVirt reports that
	// in place of a pod.
	unschedulable bool
	// poll says that no event reports the end of it.
	poll bool
}

// failedCreate says that there is no pod.
func failedCreate(err error) *trouble { return &trouble{reason: "FailedCreate", message: err.Error()} }

// find returns what keeps the guest from running; nil for nothing.
func (v view) find() *trouble {
	if v.trouble != nil {
		return v.trouble
	}
	if t := v.waitingTrouble(); t != nil {
		return t
	}
	return v.refused()
}

// refused returns why the node did not create the container, in the node's words,
// which the kubelet shortens or drops.
func (v view) refused() *trouble {
	if v.pod == nil {
		return nil
	}
	c := conditionOf(v.pod, condition.VMReady)
	if c == nil || c.Status != corev1.ConditionFalse ||
		(c.Reason != condition.ReasonCreateFailed && c.Reason != condition.ReasonStartFailed) {
		return nil
	}
	return &trouble{reason: c.Reason, message: c.Message}
}

// waitingTrouble returns the kubelet's reason for a container that it cannot start: the VM, or
// a hook sidecar, which starts before.
func (v view) waitingTrouble() *trouble {
	var all []*corev1.ContainerState
	if c := v.compute(); c != nil {
		all = append(all, c)
	}
	if v.pod != nil && !v.running() {
		for i := range v.pod.Status.InitContainerStatuses {
			all = append(all, &v.pod.Status.InitContainerStatuses[i].State)
		}
	}
	for _, c := range all {
		if c.Waiting == nil {
			continue
		}
		switch c.Waiting.Reason {
		case "", "ContainerCreating", "PodInitializing":
		default:
			return &trouble{reason: c.Waiting.Reason, message: c.Waiting.Message}
		}
	}
	return nil
}

// troubles are the reasons of events of a pod without a sandbox that say why.
var troubles = map[string]bool{
	"FailedCreatePodSandBox": true,
	"FailedMount":            true,
	"FailedAttachVolume":     true,
	"FailedMapVolume":        true,
}

// maxEvents bounds what is read of a pod's events.
const maxEvents = 100

// when returns when an event was last seen. Several fields can have that time.
func when(e *corev1.Event) time.Time {
	if e.Series != nil {
		return e.Series.LastObservedTime.Time
	}
	if !e.LastTimestamp.IsZero() {
		return e.LastTimestamp.Time
	}
	return e.EventTime.Time
}
