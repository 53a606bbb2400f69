package vm

import (
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	kubevirt "kubevirt.io/api/core/v1"

	"github.com/nodevirt/nodevirt/controller/backoff"
)

// failureUnder is startFailure where a strategy may hold the next start back: one that a person asks for waits
// for nothing, and who halts the virtual machine begins anew.
func failureUnder(
	strategy kubevirt.VirtualMachineRunStrategy, have *kubevirt.VirtualMachineStartFailure,
	vmi *kubevirt.VirtualMachineInstance, now time.Time,
) *kubevirt.VirtualMachineStartFailure {
	if strategy == kubevirt.RunStrategyManual || strategy == kubevirt.RunStrategyHalted && vmi == nil {
		return nil
	}
	return startFailure(have, vmi, now)
}

// startFailure counts instances in a row that ended by themselves soon after their
// start, or never ran. An instance counts once.
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

// holdBack is how long the next start has to wait; 0 for not at all. A time that is further away than any
// wait is another controller's, whose clock was ahead.
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
