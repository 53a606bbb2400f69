package vm

import (
	"context"
	"fmt"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	kubevirt "kubevirt.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/nodevirt/nodevirt/controller/config"
)

// skipOf returns what a VirtualMachine, or else its template, says of the hooks of backups, and whether that is new to
// the instance.
func skipOf(vm *kubevirt.VirtualMachine, vmi *kubevirt.VirtualMachineInstance) (want string, says, differs bool) {
	want, says = vm.Annotations[config.AnnotationSkipBackupHooks]
	if !says && vm.Spec.Template != nil {
		want, says = vm.Spec.Template.ObjectMeta.Annotations[config.AnnotationSkipBackupHooks]
	}
	has, is := vmi.Annotations[config.AnnotationSkipBackupHooks]
	return want, says, is != says || has != want
}

// setSkip gives an instance what [skipOf] returns.
func setSkip(vm *kubevirt.VirtualMachine, vmi *kubevirt.VirtualMachineInstance) {
	want, says, _ := skipOf(vm, vmi)
	if !says {
		delete(vmi.Annotations, config.AnnotationSkipBackupHooks)
		return
	}
	metav1.SetMetaDataAnnotation(&vmi.ObjectMeta, config.AnnotationSkipBackupHooks, want)
}

// passSkip writes on a running instance whether backups shall not freeze it.
func passSkip(ctx context.Context, by client.Client, vm *kubevirt.VirtualMachine, vmi *kubevirt.VirtualMachineInstance) error {
	if vmi == nil || vmi.IsFinal() || vmi.DeletionTimestamp != nil {
		return nil
	}
	if _, _, differs := skipOf(vm, vmi); !differs {
		return nil
	}
	before := vmi.DeepCopy()
	setSkip(vm, vmi)
	patch := client.MergeFromWithOptions(before, client.MergeFromWithOptimisticLock{})
	if err := client.IgnoreNotFound(by.Patch(ctx, vmi, patch)); err != nil {
		return fmt.Errorf("annotate VMI %s: %w", vmi.Name, err)
	}
	return nil
}
