package vm

import (
	"context"
	"fmt"

	kubevirt "kubevirt.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/nodevirt/nodevirt/controller/pod"
)

// resumed removes the request to go on from a snapshot once an instance has it. No pod of that
// instance is created before: the guest goes on from its memory once.
func resumed(ctx context.Context, by client.Writer, vm *kubevirt.VirtualMachine, vmi *kubevirt.VirtualMachineInstance) error {
	from := vm.Annotations[pod.AnnotationResume]
	if from == "" || vmi == nil || vmi.Annotations[pod.AnnotationResume] != from {
		return nil
	}
	before := vm.DeepCopy()
	delete(vm.Annotations, pod.AnnotationResume)
	delete(vm.Annotations, pod.AnnotationSuspend)
	patch := client.MergeFromWithOptions(before, client.MergeFromWithOptimisticLock{})
	if err := by.Patch(ctx, vm, patch); err != nil {
		return client.IgnoreNotFound(fmt.Errorf("note that VM %s/%s goes on from PVC %s: %w", vm.Namespace, vm.Name, from, err))
	}
	return nil
}
