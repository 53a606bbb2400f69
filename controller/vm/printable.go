package vm

import (
	corev1 "k8s.io/api/core/v1"
	kubevirt "kubevirt.io/api/core/v1"

	"github.com/nodevirt/nodevirt/controller/vmi"
	podcondition "github.com/nodevirt/nodevirt/shim/podstatus/condition"
)

// printable returns the status that kubectl get shows.
func printable(vm *kubevirt.VirtualMachine, o outcome) kubevirt.VirtualMachinePrintableStatus {
	switch {
	case vm.DeletionTimestamp != nil:
		return kubevirt.VirtualMachineStatusTerminating
	case o.vmi == nil && !o.wanted && suspended(vm):
		return statusSuspended
	case o.vmi == nil:
		return withoutInstance(o)
	case o.vmi.DeletionTimestamp != nil:
		return kubevirt.VirtualMachineStatusStopping
	case o.vmi.IsFinal():
		if o.decision.stop || o.decision.wait > 0 {
			return withoutInstance(o)
		}
		return kubevirt.VirtualMachineStatusStopped
	case o.decision.stop:
		return kubevirt.VirtualMachineStatusStopping
	case o.vmi.Status.Phase == kubevirt.Unknown:
		return kubevirt.VirtualMachineStatusUnknown
	case o.vmi.Status.Phase == kubevirt.Running && wantsSuspend(vm):
		return statusSuspending
	case isTrue(o.vmi, kubevirt.VirtualMachineInstancePaused):
		return kubevirt.VirtualMachineStatusPaused
	case o.vmi.Status.Phase == kubevirt.Running && vmi.Migrating(o.vmi):
		return kubevirt.VirtualMachineStatusMigrating
	case o.vmi.Status.Phase == kubevirt.Running:
		return kubevirt.VirtualMachineStatusRunning
	}
	return starting(o)
}

func withoutInstance(o outcome) kubevirt.VirtualMachinePrintableStatus {
	switch {
	case isTemplateError(o.failure):
		return kubevirt.VirtualMachineStatusDataVolumeError
	case o.decision.wait > 0, o.decision.stop && o.startFailure != nil && o.strategy != kubevirt.RunStrategyHalted:
		return kubevirt.VirtualMachineStatusCrashLoopBackOff
	case o.wanted && o.unbound:
		return kubevirt.VirtualMachineStatusWaitingForVolumeBinding
	case missing(o.failure) != nil:
		return kubevirt.VirtualMachineStatusStopped
	case o.wanted && o.failure != nil:
		return kubevirt.VirtualMachinePrintableStatus(failureReason(o.failure))
	case o.wanted, o.decision.stop && o.strategy == kubevirt.RunStrategyAlways:
		return kubevirt.VirtualMachineStatusStarting
	}
	return kubevirt.VirtualMachineStatusStopped
}

// starting returns what keeps an instance from running, if KubeVirt has a status for it.
func starting(o outcome) kubevirt.VirtualMachinePrintableStatus {
	reason := ""
	if c := condition(o.vmi, kubevirt.VirtualMachineInstanceSynchronized); c != nil {
		reason = c.Reason
	}
	scheduled := condition(o.vmi, kubevirt.VirtualMachineInstanceConditionType(corev1.PodScheduled))
	switch {
	case reason == vmi.ReasonPVCNotFound, reason == vmi.ReasonDataVolumeNotFound: // one status for both, as KubeVirt
		return kubevirt.VirtualMachineStatusPvcNotFound
	case reason == vmi.ReasonDataVolumeFailed:
		return kubevirt.VirtualMachineStatusDataVolumeError
	case scheduled != nil && scheduled.Status == corev1.ConditionFalse:
		return kubevirt.VirtualMachineStatusUnschedulable
	case reason == vmi.ReasonDataVolumeNotReady, reason == podcondition.ReasonUnfinished:
		return kubevirt.VirtualMachineStatusProvisioning
	case reason != "" && reason != vmi.ReasonPreviousRunning: // such as ErrImagePull; where KubeVirt has no status, as kubectl shows it of pods
		return kubevirt.VirtualMachinePrintableStatus(reason)
	case o.unbound:
		return kubevirt.VirtualMachineStatusWaitingForVolumeBinding
	}
	return kubevirt.VirtualMachineStatusStarting
}
