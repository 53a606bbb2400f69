package vm

import (
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	kubevirt "kubevirt.io/api/core/v1"

	"github.com/nodevirt/nodevirt/controller/backoff"
)

// failureUnder returns startFailure if the strategy may delay the next start. A start that a user requests is not delayed.
// Halting the VM resets the count, and so does a guest that powers off where that ends the VM.
func failureUnder(
	strategy kubevirt.VirtualMachineRunStrategy, have *kubevirt.VirtualMachineStartFailure,
	vmi *kubevirt.VirtualMachineInstance, now time.Time,
) *kubevirt.VirtualMachineStartFailure {
	switch {
	case strategy == kubevirt.RunStrategyManual, strategy == kubevirt.RunStrategyHalted && vmi == nil:
		return nil
	case vmi != nil && vmi.Status.Phase == kubevirt.Succeeded && strategy != kubevirt.RunStrategyAlways:
		return nil // the guest has powered off, and the VM stays so
	case strategy == kubevirt.RunStrategyOnce:
		return nil // there is no next start
	}
	return startFailure(have, vmi, now)
}

// startFailure counts consecutive instances that ended by themselves soon after their
// start, or never ran. It counts each instance once.
func startFailure(
	have *kubevirt.VirtualMachineStartFailure, vmi *kubevirt.VirtualMachineInstance, now time.Time,
) *kubevirt.VirtualMachineStartFailure {
	if vmi == nil {
		return have
	}
	switch {
	case backoff.RunTime(vmi, now) >= backoff.Steady:
		return nil
	case !backoff.EndedEarly(vmi, now):
		return have
	case have != nil && have.LastFailedVMIUID == vmi.UID:
		return have
	}
	next := kubevirt.VirtualMachineStartFailure{ConsecutiveFailCount: 1, LastFailedVMIUID: vmi.UID}
	if have != nil {
		next.ConsecutiveFailCount += have.ConsecutiveFailCount
	}
	retry := metav1.NewTime(now.Add(backoff.Wait(next.ConsecutiveFailCount)))
	next.RetryAfterTimestamp = &retry
	return &next
}

// holdBack returns how long the next start must wait; 0 for not at all. It ignores a time that is further
// away than any wait: a controller whose clock was ahead wrote it.
func holdBack(vm *kubevirt.VirtualMachine, now time.Time) time.Duration {
	f := vm.Status.StartFailure
	if f == nil || f.RetryAfterTimestamp == nil {
		return 0
	}
	wait := f.RetryAfterTimestamp.Sub(now)
	if wait > backoff.Longest+backoff.Steady {
		return 0
	}
	return max(wait, 0)
}
