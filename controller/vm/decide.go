package vm

import (
	"slices"
	"time"

	kubevirt "kubevirt.io/api/core/v1"
)

// decision is the next step for a VirtualMachine.
type decision struct {
	// start creates an instance, stop deletes the existing one.
	start, stop bool
	// again records that a start must follow this stop, since the strategy alone
	// would not start the VM.
	again bool
	// wait is how long a start is delayed; 0 for no delay.
	wait time.Duration
}

// decide returns the next step for a VirtualMachine and its instance, which is nil
// if it has none. It is pure.
//
//	Always          there is always an instance: an ended one is replaced
//	RerunOnFailure  an instance that failed is replaced, and one that succeeded deleted
//	Once            one instance, ever
//	Manual          as requests to start and stop say
//	Halted          there is none
func decide(
	vm *kubevirt.VirtualMachine, strategy kubevirt.VirtualMachineRunStrategy,
	vmi *kubevirt.VirtualMachineInstance, now time.Time,
) decision {
	switch {
	case vmi != nil && vmi.DeletionTimestamp != nil:
		return decision{}
	case strategy == kubevirt.RunStrategyHalted:
		return decision{stop: vmi != nil}
	case vmi != nil:
		return decideExisting(vm, strategy, vmi, now)
	case !wantsStart(vm, strategy):
		return decision{}
	}
	if wait := holdBack(vm, now); wait > 0 {
		return decision{wait: wait}
	}
	return decision{start: true}
}

// decideExisting is [decide] for a VirtualMachine with an instance. One that has ended stays until the next start, so that its
// pod's log and its conditions say why it ended.
func decideExisting(
	vm *kubevirt.VirtualMachine, strategy kubevirt.VirtualMachineRunStrategy, vmi *kubevirt.VirtualMachineInstance, now time.Time,
) decision {
	failed := vmi.Status.Phase == kubevirt.Failed
	switch {
	case stopRequested(vm, vmi):
		return decision{stop: true}
	case !vmi.IsFinal():
		return decision{}
	case startRequested(vm):
		return decision{stop: true, again: strategy == kubevirt.RunStrategyRerunOnFailure && failed}
	case strategy == kubevirt.RunStrategyAlways || strategy == kubevirt.RunStrategyRerunOnFailure && failed:
		// If a disk was being moved, the VirtualMachine must record at once which PVCs have its data.
		if wait := holdBack(vm, now); wait > 0 && len(vmi.Status.MigratedVolumes) == 0 {
			return decision{wait: wait}
		}
	}
	switch strategy {
	case kubevirt.RunStrategyAlways:
		return decision{stop: true}
	case kubevirt.RunStrategyRerunOnFailure:
		return decision{stop: true, again: failed}
	}
	return decision{}
}

// wantsStart reports whether a VirtualMachine without an instance should get one.
// A VirtualMachine that follows its strategy for the first time should.
func wantsStart(vm *kubevirt.VirtualMachine, strategy kubevirt.VirtualMachineRunStrategy) bool {
	switch strategy {
	case kubevirt.RunStrategyAlways:
		return true
	case kubevirt.RunStrategyRerunOnFailure, kubevirt.RunStrategyOnce:
		return startRequested(vm) || vm.Status.RunStrategy != strategy
	case kubevirt.RunStrategyManual:
		return startRequested(vm)
	}
	return false
}

func startRequested(vm *kubevirt.VirtualMachine) bool {
	for _, r := range vm.Status.StateChangeRequests {
		if r.Action == kubevirt.StartRequest {
			return true
		}
	}
	return false
}

// startsPaused reports whether a user requested a start that leaves the guest paused.
func startsPaused(vm *kubevirt.VirtualMachine) bool {
	return slices.ContainsFunc(vm.Status.StateChangeRequests, pausedStart)
}

func pausedStart(r kubevirt.VirtualMachineStateChangeRequest) bool {
	return r.Action == kubevirt.StartRequest && r.Data[kubevirt.StartRequestDataPausedKey] == kubevirt.StartRequestDataPausedTrue
}

func stopRequested(vm *kubevirt.VirtualMachine, vmi *kubevirt.VirtualMachineInstance) bool {
	for _, r := range vm.Status.StateChangeRequests {
		if r.Action == kubevirt.StopRequest && r.UID != nil && *r.UID == vmi.UID {
			return true
		}
	}
	return false
}

// pending returns the requests that are not done yet. A stop is done when its
// instance is gone, and a start when an instance runs that no stop names. Halting the
// VM cancels a start.
func pending(
	vm *kubevirt.VirtualMachine, strategy kubevirt.VirtualMachineRunStrategy, vmi *kubevirt.VirtualMachineInstance,
) []kubevirt.VirtualMachineStateChangeRequest {
	var left []kubevirt.VirtualMachineStateChangeRequest
	for _, r := range vm.Status.StateChangeRequests {
		switch {
		case r.Action == kubevirt.StopRequest && (vmi == nil || r.UID == nil || *r.UID != vmi.UID):
		case r.Action == kubevirt.StartRequest && strategy == kubevirt.RunStrategyHalted && (vmi != nil || !pausedStart(r)):
		case r.Action == kubevirt.StartRequest && vmi != nil && vmi.DeletionTimestamp == nil &&
			!vmi.IsFinal() && !stopRequested(vm, vmi):
		default:
			left = append(left, r)
		}
	}
	return left
}
