package vmi

import (
	"time"

	corev1 "k8s.io/api/core/v1"
	kubevirt "kubevirt.io/api/core/v1"

	"github.com/nodevirt/nodevirt/controller/pod"
	"github.com/nodevirt/nodevirt/shim/podstatus/condition"
)

// view is the input of an instance's status.
type view struct {
	// pod is the instance's; nil as long as there is none, and when it is gone.
	pod  *corev1.Pod
	gone bool
	// node is where the pod is bound to; zero while it is not.
	node node
	// trouble is what keeps the guest from running, if the pod does not say.
	trouble *trouble
	// unfilled is the DataVolume that CDI fills while the pod waits, unwritten the PVC of a DataVolume that the node fills
	// without CDI before the guest starts.
	unfilled  *trouble
	unwritten string
	// unmet is which field of the instance keeps its pod off all nodes.
	unmet string
	// unhealthy says that the kubelet stopped the guest, since its liveness probe failed.
	unhealthy bool
	// cardTrouble is why a running guest does not get the first network card that it is about to get.
	cardTrouble string
	// unresized is why the API server refused to resize the pod.
	unresized string
	// pvcs are the instance's PVCs, once its guest runs.
	pvcs pod.PVCObjects
	// away is where a migration that the instance does not know has taken the guest; nil for nowhere.
	away *condition.Departure
	// waits: the node misses the guest's container, and others may say that they have the guest.
	waits bool
	// ownAddress is why a guest that runs could not keep its addresses on another node; empty if nothing says so.
	ownAddress string
	// again is when to look at a deleted node again; 0 for never.
	again time.Duration
}

// node is what matters of an instance's node.
type node struct {
	// deleted: the Node object does not exist, and its guests may run.
	deleted bool
	// gone: the Node object does not exist, and its guests have ended.
	gone bool
	// lost: its kubelet has not reported for a while.
	lost bool
	// outOfService: an administrator confirmed that nothing runs there any more.
	outOfService bool
}

// silent reports whether nothing reports what happens on the node, where guests may run.
func (n node) silent() bool { return n.lost || n.deleted }

// vacant reports whether nothing runs on the node and no kubelet can confirm it.
func (n node) vacant() bool { return n.gone || n.outOfService }

func readNode(n *corev1.Node) node {
	var result node
	notReady := false
	for _, c := range n.Status.Conditions {
		if c.Type == corev1.NodeReady {
			result.lost = c.Status == corev1.ConditionUnknown
			notReady = c.Status != corev1.ConditionTrue
		}
	}
	for _, t := range n.Spec.Taints {
		// As Kubernetes' own pod GC has it: of a node that reports, the reports count.
		result.outOfService = result.outOfService || (t.Key == corev1.TaintNodeOutOfService && notReady)
	}
	return result
}

// compute is the state of the VM's container; nil as long as none was reported.
func (v view) compute() *corev1.ContainerState {
	if v.pod == nil {
		return nil
	}
	for i := range v.pod.Status.ContainerStatuses {
		if s := &v.pod.Status.ContainerStatuses[i]; s.Name == pod.Container {
			return &s.State
		}
	}
	return nil
}

func (v view) running() bool {
	c := v.compute()
	return c != nil && c.Running != nil
}

// ended reports whether the pod's guest does not run and never will again.
func (v view) ended() bool {
	switch c := v.compute(); {
	case v.pod == nil:
		return v.gone
	case v.pod.Spec.NodeName == "":
		// The API server binds no pod that is being deleted.
		return v.pod.DeletionTimestamp != nil || v.terminal()
	case v.node.vacant() || v.guestless():
		return true
	case c != nil && c.Terminated != nil:
		return true
	case c != nil && c.Running != nil:
		return false
	}
	// Nothing was started: refused by the kubelet, evicted, or deleted before.
	return v.terminal() && !v.collected()
}

// AnnotationNoGuest of a pod has the UID of the migration whose guest it never got, though its node is silent.
const AnnotationNoGuest = "nodevirt.io/no-guest"

// guestless reports whether the pod, whose node is silent, never got the guest of a migration.
func (v view) guestless() bool { return v.node.silent() && v.pod.Annotations[AnnotationNoGuest] != "" }

// collected reports whether Kubernetes' pod GC, and not the kubelet, gave a bound pod its last phase: a kubelet that
// lives may have started the guest.
func (v view) collected() bool {
	c := conditionOf(v.pod, corev1.DisruptionTarget)
	return c != nil && c.Status == corev1.ConditionTrue && c.Reason == reasonPodGC
}

// reasonPodGC is Kubernetes'.
const reasonPodGC = "DeletionByPodGC"

// completed reports whether the node says that the guest has powered off. The kubelet, which has to
// say that it ended, does so a second or more later.
func (v view) completed() bool {
	c := conditionOf(v.pod, condition.VMReady)
	return c != nil && c.Status == corev1.ConditionFalse && c.Reason == condition.ReasonCompleted
}

// terminal: the kubelet gives a pod its last phase when no container runs.
func (v view) terminal() bool {
	return v.pod.Status.Phase == corev1.PodFailed || v.pod.Status.Phase == corev1.PodSucceeded
}

// phase returns the instance's phase.
//
//	Pending ──▶ Scheduling ──▶ Scheduled ──▶ Running ──▶ Succeeded, Failed
//	(no pod)     (no node)      (a node)   ◀─▶ Unknown (the node is lost, or the guest elsewhere or missing)
func (v view) phase() kubevirt.VirtualMachineInstancePhase {
	switch c := v.compute(); {
	case v.pod == nil && !v.gone:
		return kubevirt.Pending
	case v.away != nil || v.waits:
		return kubevirt.Unknown
	case v.ended():
		if c != nil && c.Terminated != nil && c.Terminated.ExitCode == 0 {
			return kubevirt.Succeeded
		}
		return kubevirt.Failed
	case v.pod.Spec.NodeName == "":
		return kubevirt.Scheduling
	case v.node.silent():
		return kubevirt.Unknown
	case v.completed():
		return kubevirt.Succeeded
	case v.running():
		return kubevirt.Running
	}
	return kubevirt.Scheduled
}

const (
	// silence is how long the reconciler waits for a pod's sandbox before it looks for
	// the cause.
	silence = 3 * time.Second
	// maxSilence bounds the time between two such looks.
	maxSilence = time.Minute
)

// lookAgain reports whether to list the pod's events now, since only events say why
// its sandbox or its volumes cannot be created, and when to look the next time; 0 for
// never, if the pod itself reports its state.
func (v view) lookAgain(now time.Time) (due bool, next time.Duration) {
	if v.phase() != kubevirt.Scheduled || v.waitingTrouble() != nil {
		return false, 0
	}
	return lookAtEvents(v.pod, now)
}

// lookAtEvents reports whether only events say why a pod does not start, and returns when to look at them again; 0 for never.
func lookAtEvents(p *corev1.Pod, now time.Time) (due bool, next time.Duration) {
	if c := conditionOf(p, corev1.PodReadyToStartContainers); c != nil && c.Status == corev1.ConditionTrue {
		return false, 0
	}
	bound := p.CreationTimestamp.Time
	if c := conditionOf(p, corev1.PodScheduled); c != nil {
		bound = c.LastTransitionTime.Time
	}
	silent := now.Sub(bound).Abs() // the clock may have been set back since
	if silent < silence {
		return false, silence - silent
	}
	return true, min(max(silent/2, silence), maxSilence)
}

// conditionOf is a pod's of that type; nil if it has none.
func conditionOf(p *corev1.Pod, kind corev1.PodConditionType) *corev1.PodCondition {
	for i := range p.Status.Conditions {
		if p.Status.Conditions[i].Type == kind {
			return &p.Status.Conditions[i]
		}
	}
	return nil
}
