package vm

import (
	"context"
	"fmt"

	kubevirt "kubevirt.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/nodevirt/nodevirt/controller/config"
)

// setSkip gives an instance what its VirtualMachine, or else the template, says of the hooks of backups. It returns
// whether that is new to the instance.
func setSkip(vm *kubevirt.VirtualMachine, vmi *kubevirt.VirtualMachineInstance) bool {
	const key = config.AnnotationSkipBackupHooks
	want, says := vm.Annotations[key]
	if !says && vm.Spec.Template != nil {
		want, says = vm.Spec.Template.ObjectMeta.Annotations[key]
	}
	if has, is := vmi.Annotations[key]; is == says && has == want {
		return false
	}
	if !says {
		delete(vmi.Annotations, key)
		return true
	}
	if vmi.Annotations == nil {
		vmi.Annotations = map[string]string{}
	}
	vmi.Annotations[key] = want
	return true
}

// passSkip writes on a running instance whether backups shall not freeze it.
func passSkip(ctx context.Context, by client.Client, vm *kubevirt.VirtualMachine, vmi *kubevirt.VirtualMachineInstance) error {
	if vmi == nil || vmi.IsFinal() || vmi.DeletionTimestamp != nil {
		return nil
	}
	before := vmi.DeepCopy()
	if !setSkip(vm, vmi) {
		return nil
	}
	patch := client.MergeFromWithOptions(before, client.MergeFromWithOptimisticLock{})
	if err := client.IgnoreNotFound(by.Patch(ctx, vmi, patch)); err != nil {
		return fmt.Errorf("annotate VMI %s: %w", vmi.Name, err)
	}
	return nil
}
