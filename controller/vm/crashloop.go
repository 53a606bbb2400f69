package vm

import (
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	kubevirt "kubevirt.io/api/core/v1"

	"github.com/nodevirt/nodevirt/controller/backoff"
)

// reasonBackOff is the kubelet's, for containers.
const reasonBackOff = "BackOff"

// crashLoop returns the condition that says why the last start failed and when the next one is. It stays when the failed
// instance is gone. It is nil while there is an instance that may succeed.
func crashLoop(vm *kubevirt.VirtualMachine, o outcome) *cond {
	f := o.startFailure
	switch {
	case f == nil || o.failure != nil:
		return nil
	case o.vmi == nil || o.vmi.IsFinal() && o.vmi.UID != f.LastFailedVMIUID:
		at := slices.IndexFunc(vm.Status.Conditions, func(c cond) bool {
			return c.Type == kubevirt.VirtualMachineFailure && c.Reason == reasonBackOff
		})
		if at < 0 {
			return nil
		}
		return &vm.Status.Conditions[at]
	case !o.vmi.IsFinal():
		return nil
	}
	why := "it ended soon after its start"
	if c := condition(o.vmi, kubevirt.VirtualMachineInstanceReady); c != nil && c.Message != "" {
		why = c.Message
	}
	text := fmt.Sprintf("%d in a row ended within %s of their start, or never ran. The last: %s", f.ConsecutiveFailCount, backoff.Steady, why)
	if next := o.decision.stop || o.decision.wait > 0 || o.vmi.DeletionTimestamp != nil; next && f.RetryAfterTimestamp != nil {
		text += " The next start is at " + f.RetryAfterTimestamp.UTC().Format(time.RFC3339) + "."
	}
	return &cond{Type: kubevirt.VirtualMachineFailure, Status: corev1.ConditionTrue, Reason: reasonBackOff, Message: text}
}
