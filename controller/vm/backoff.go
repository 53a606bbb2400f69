package vm

import (
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	kubevirt "kubevirt.io/api/core/v1"
)

const (
	// steady is how long an instance has to run for its start to count as a success.
	steady = time.Minute
	// backoffUnit times the square of the failures in a row is the wait for the
	// next start, maxBackoff the longest, as with KubeVirt.
	backoffUnit = 10 * time.Second
	maxBackoff  = 5 * time.Minute
)

// startFailure counts instances in a row that ended soon after their start, or
// never ran. An instance counts once.
func startFailure(
	have *kubevirt.VirtualMachineStartFailure, vmi *kubevirt.VirtualMachineInstance, now time.Time,
) *kubevirt.VirtualMachineStartFailure {
	if vmi == nil {
		return have
	}
	ran := runTime(vmi, now)
	switch {
	case ran >= steady:
		return nil
	case !vmi.IsFinal():
		return have
	case have != nil && have.LastFailedVMIUID == vmi.UID:
		return have
	}
	next := kubevirt.VirtualMachineStartFailure{ConsecutiveFailCount: 1, LastFailedVMIUID: vmi.UID}
	if have != nil {
		next.ConsecutiveFailCount += have.ConsecutiveFailCount
	}
	n := min(next.ConsecutiveFailCount, 100) // far beyond the longest wait
	retry := metav1.NewTime(now.Add(min(backoffUnit*time.Duration(n*n), maxBackoff)))
	next.RetryAfterTimestamp = &retry
	return &next
}

// runTime is how long an instance has been, or was, in its phase Running.
func runTime(vmi *kubevirt.VirtualMachineInstance, now time.Time) time.Duration {
	var since time.Time
	until := now
	for _, t := range vmi.Status.PhaseTransitionTimestamps {
		switch t.Phase {
		case kubevirt.Running:
			if since.IsZero() {
				since = t.PhaseTransitionTimestamp.Time
			}
		case kubevirt.Succeeded, kubevirt.Failed:
			until = t.PhaseTransitionTimestamp.Time
		}
	}
	if since.IsZero() {
		return 0
	}
	return until.Sub(since)
}

// holdBack is how long the next start has to wait; 0 for not at all.
func holdBack(vm *kubevirt.VirtualMachine, now time.Time) time.Duration {
	f := vm.Status.StartFailure
	if f == nil || f.RetryAfterTimestamp == nil {
		return 0
	}
	return max(f.RetryAfterTimestamp.Sub(now), 0)
}
