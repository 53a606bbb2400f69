package pool

import (
	"k8s.io/apimachinery/pkg/util/intstr"
	api "kubevirt.io/api/pool/v1beta1"

	"github.com/nodevirt/nodevirt/controller/replicas"
)

// updatePolicy returns the policy that selects VMs to update, and whether a pool
// updates VMs and replaces their instances by itself.
func updatePolicy(pool *vmPool) (policy *api.VirtualMachinePoolSelectionPolicy, updates, replaces bool) {
	s := pool.Spec.UpdateStrategy
	switch {
	case s == nil:
		return nil, true, true
	case s.Unmanaged != nil:
		return nil, false, false
	case s.Opportunistic != nil:
		return nil, true, false
	case s.Proactive != nil:
		return s.Proactive.SelectionPolicy, true, true
	}
	return nil, true, true
}

// scaleIn is how a pool removes VMs.
type scaleIn struct {
	policy *api.VirtualMachinePoolSelectionPolicy
	// never removes none, and resting only those that have stopped.
	never, resting bool
	// preserves keeps the PVCs of removed VMs.
	preserves bool
}

func scaleInOf(pool *vmPool) scaleIn {
	s := pool.Spec.ScaleInStrategy
	offline := func(p *api.StatePreservation) bool { return p != nil && *p == api.StatePreservationOffline }
	switch {
	case s == nil:
		return scaleIn{}
	case s.Unmanaged != nil:
		return scaleIn{never: true}
	case s.Opportunistic != nil:
		return scaleIn{resting: true, preserves: offline(s.Opportunistic.StatePreservation)}
	case s.Proactive != nil:
		return scaleIn{policy: s.Proactive.SelectionPolicy, preserves: offline(s.Proactive.StatePreservation)}
	}
	return scaleIn{}
}

// mayBeUnavailable returns how many of a pool's VMs may be unavailable because of an
// update: at least one, else the update would never end.
func mayBeUnavailable(pool *vmPool) int {
	wanted := replicas.Wanted(pool.Spec.Replicas)
	if pool.Spec.MaxUnavailable == nil {
		return wanted
	}
	n, err := intstr.GetScaledValueFromIntOrPercent(pool.Spec.MaxUnavailable, wanted, false)
	if err != nil { // where admission runs there is none
		return 1
	}
	return max(n, 1)
}
