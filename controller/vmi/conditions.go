package vmi

import (
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	kubevirt "kubevirt.io/api/core/v1"

	"github.com/nodevirt/nodevirt/controller/pod"
	"github.com/nodevirt/nodevirt/shim/podstatus/condition"
)

type cond = kubevirt.VirtualMachineInstanceCondition

// conditions returns the instance's conditions and keeps those of other controllers.
// The time of a transition changes only with a condition's status.
func conditions(vmi *kubevirt.VirtualMachineInstance, v view, now time.Time) []cond {
	all := slices.Clone(vmi.Status.Conditions)
	set := func(c cond) {
		c.LastTransitionTime = metav1.NewTime(now)
		at := slices.IndexFunc(all, func(have cond) bool { return have.Type == c.Type })
		switch {
		case at < 0:
			all = append(all, c)
		case all[at].Status == c.Status:
			c.LastTransitionTime = all[at].LastTransitionTime
			all[at] = c
		default:
			all[at] = c
		}
	}
	drop := func(kind kubevirt.VirtualMachineInstanceConditionType) {
		all = slices.DeleteFunc(all, func(have cond) bool { return have.Type == kind })
	}
	set(ready(v))
	for _, kind := range []struct {
		pod corev1.PodConditionType
		own kubevirt.VirtualMachineInstanceConditionType
	}{
		{condition.Paused, kubevirt.VirtualMachineInstancePaused},
		{condition.AgentConnected, kubevirt.VirtualMachineInstanceAgentConnected},
	} {
		// As in KubeVirt these exist only while they are true.
		if c := v.trueCondition(kind.pod); c != nil {
			set(cond{Type: kind.own, Status: c.Status, Reason: c.Reason, Message: c.Message})
		} else {
			drop(kind.own)
		}
	}
	for _, kind := range []kubevirt.VirtualMachineInstanceConditionType{
		kubevirt.VirtualMachineInstanceAccessCredentialsSynchronized, kubevirt.VirtualMachineInstanceUnsupportedAgent,
	} {
		if c := access(v, kind); c != nil {
			set(*c)
		} else {
			drop(kind)
		}
	}
	for _, kind := range []kubevirt.VirtualMachineInstanceConditionType{
		kubevirt.VirtualMachineInstanceVCPUChange, kubevirt.VirtualMachineInstanceMemoryChange,
	} {
		if c := find(changes(vmi, v), kind); c != nil {
			set(*c)
		} else {
			drop(kind)
		}
	}
	if v.pod != nil {
		set(migratable(vmi, v))
		set(storageMigratable(vmi))
	}
	if c := migrationRequired(vmi, v); c != nil {
		set(*c)
	} else {
		drop(kubevirt.VirtualMachineInstanceMigrationRequired)
	}
	if vmi.IsMarkedForEviction() {
		set(cond{
			Type: kubevirt.VirtualMachineInstanceEvictionRequested, Status: corev1.ConditionTrue,
			Reason:  kubevirt.VirtualMachineInstanceReasonEvictionRequested,
			Message: "The VMI was asked to leave node " + vmi.Status.EvacuationNodeName,
		})
	} else {
		drop(kubevirt.VirtualMachineInstanceEvictionRequested)
	}
	if c := dataVolumesReady(vmi, v); c != nil {
		set(*c)
	}
	if c := scheduled(v); c != nil {
		set(*c)
	} else if !v.gone { // what was said before there was a pod
		drop(podScheduled)
	}
	if t := v.find(); t != nil && v.phase() != kubevirt.Running {
		set(cond{
			Type: kubevirt.VirtualMachineInstanceSynchronized, Status: corev1.ConditionFalse,
			Reason: t.reason, Message: t.message,
		})
	} else {
		drop(kubevirt.VirtualMachineInstanceSynchronized)
	}
	return all
}

// migrationRequired returns the condition of an instance that gets a network by a migration, or a network card
// without one; nil for others.
func migrationRequired(vmi *kubevirt.VirtualMachineInstance, v view) *cond {
	c := cond{Type: kubevirt.VirtualMachineInstanceMigrationRequired, Status: corev1.ConditionTrue}
	if !v.running() {
		return nil
	}
	if pod.OtherNetworks(vmi, v.pod) {
		c.Reason, c.Message = kubevirt.VirtualMachineInstanceReasonAutoMigrationDueToLiveUpdate, "The VMI gets its network by a migration"
		return &c
	}
	awaited := awaitedCards(vmi, v.pod)
	if len(awaited) == 0 {
		return nil
	}
	c.Status, c.Reason = corev1.ConditionFalse, kubevirt.VirtualMachineInstanceReasonAutoMigrationPending
	c.Message = "The running VM is about to get network card " + awaited[0]
	if v.cardTrouble != "" {
		c.Message = fmt.Sprintf("The running VM does not get network card %s: %s", awaited[0], v.cardTrouble)
	}
	return &c
}

func ready(v view) cond {
	c := cond{Type: kubevirt.VirtualMachineInstanceReady, Status: corev1.ConditionFalse}
	switch {
	case v.pod == nil && !v.gone:
		c.Reason, c.Message = kubevirt.PodNotExistsReason, "The pod of the virtual machine does not exist"
	case v.phase() == kubevirt.Failed:
		c.Reason, c.Message = kubevirt.GuestNotRunningReason, v.why()
	case v.phase() == kubevirt.Succeeded:
		c.Reason, c.Message = kubevirt.GuestNotRunningReason, v.poweredOff()
	case v.phase() != kubevirt.Running && v.phase() != kubevirt.Unknown:
		c.Reason, c.Message = kubevirt.GuestNotRunningReason, "Guest VM is not reported as running"
	case v.phase() == kubevirt.Unknown:
		c.Status, c.Reason = corev1.ConditionUnknown, reason(v)
		c.Message = "The guest's node does not report"
		if v.node.deleted {
			c.Message = "The guest's Node object was deleted, and the guest may still run"
		}
		if v.away != nil {
			c.Message = v.elsewhere()
		}
		if v.waits {
			c.Message = v.awaited()
		}
	case v.pod.DeletionTimestamp != nil:
		c.Reason, c.Message = kubevirt.PodTerminatingReason, "The pod of the virtual machine is being terminated"
	default:
		if paused := v.trueCondition(condition.Paused); paused != nil {
			c.Reason, c.Message = paused.Reason, "the guest is paused"
			if paused.Message != "" {
				c.Message += ": " + paused.Message
			}
			return c
		}
		p := conditionOf(v.pod, corev1.PodReady)
		if p == nil {
			c.Reason, c.Message = kubevirt.PodConditionMissingReason, "The pod reports no readiness"
			return c
		}
		c.Status, c.Reason, c.Message = p.Status, p.Reason, p.Message
	}
	return c
}

// access returns the condition of a type that a running guest's agent and the state of its access
// credentials give; nil for none.
func access(v view, kind kubevirt.VirtualMachineInstanceConditionType) *cond {
	if !v.running() {
		return nil
	}
	c := conditionOf(v.pod, condition.AccessCredentialsSynchronized)
	g, _ := v.guest()
	switch {
	case kind == kubevirt.VirtualMachineInstanceUnsupportedAgent && len(g.Refused) > 0:
		return &cond{
			Type: kind, Status: corev1.ConditionTrue, Reason: condition.ReasonUnsupportedAgent,
			Message: "the guest agent does not allow " + strings.Join(g.Refused, ", "),
		}
	case c == nil:
		return nil
	case kind == kubevirt.VirtualMachineInstanceAccessCredentialsSynchronized:
		return &cond{Type: kind, Status: c.Status, Reason: c.Reason, Message: c.Message}
	case c.Reason == condition.ReasonUnsupportedAgent:
		return &cond{Type: kind, Status: corev1.ConditionTrue, Reason: c.Reason, Message: c.Message}
	}
	return nil
}

const podScheduled = kubevirt.VirtualMachineInstanceConditionType(corev1.PodScheduled)

func scheduled(v view) *cond {
	if v.pod == nil {
		if v.trouble == nil || !v.trouble.unschedulable {
			return nil
		}
		return &cond{Type: podScheduled, Status: corev1.ConditionFalse, Reason: corev1.PodReasonUnschedulable, Message: v.trouble.message}
	}
	p := conditionOf(v.pod, corev1.PodScheduled)
	if p == nil {
		return nil
	}
	return &cond{
		Type:   podScheduled,
		Status: p.Status, Reason: p.Reason, Message: strings.TrimSpace(v.unmet + " " + p.Message),
	}
}
