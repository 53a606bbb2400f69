// Package backoff defines when the start of a guest counts as failed, and how long
// the next start waits. It leaves counting to the controllers that create instances.
package backoff

import (
	"time"

	kubevirt "kubevirt.io/api/core/v1"

	instances "github.com/nodevirt/nodevirt/controller/vmi"
)

const (
	// Steady is how long an instance has to run for its start to count as a success.
	Steady = time.Minute
	// Unit times the square of the failures in a row is the wait for the next start,
	// as with KubeVirt.
	Unit = 10 * time.Second
	// Longest is the longest wait.
	Longest = 5 * time.Minute
)

// Wait is how long the next start waits after so many failures in a row.
func Wait(failures int) time.Duration {
	n := min(failures, 100) // far beyond the longest wait
	return min(Unit*time.Duration(n*n), Longest)
}

// EndedEarly reports whether an instance ended by itself soon after its start, or
// never ran.
func EndedEarly(vmi *kubevirt.VirtualMachineInstance, now time.Time) bool {
	return vmi.IsFinal() && !instances.Disrupted(vmi) && RunTime(vmi, now) < Steady
}

// RunTime returns how long an instance has been, or was, in the phase Running.
func RunTime(vmi *kubevirt.VirtualMachineInstance, now time.Time) time.Duration {
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
