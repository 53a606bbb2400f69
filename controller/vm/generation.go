package vm

import (
	"context"
	"fmt"
	"strconv"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	kubevirt "kubevirt.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/nodevirt/nodevirt/controller/pod"
)

// generationOf returns the generation of its VirtualMachine that an instance is of; 0 if
// that is unknown.
func generationOf(vmi *kubevirt.VirtualMachineInstance) int64 {
	g, err := strconv.ParseInt(vmi.Annotations[kubevirt.VirtualMachineGenerationAnnotation], 10, 64)
	if err != nil {
		return 0
	}
	return g
}

// raiseGeneration notes on an instance the VirtualMachine's present generation, if the
// instance is what the template says: after an edit that needs no restart, such as one of
// the run strategy. The VirtualMachine's status then has that generation as the observed one,
// as with KubeVirt: kubectl waits for that. The instance's status names the revision of its
// start first.
func (r *Reconciler) raiseGeneration(ctx context.Context, vm *kubevirt.VirtualMachine, vmi *kubevirt.VirtualMachineInstance) error {
	if vmi == nil || vmi.IsFinal() || vmi.DeletionTimestamp != nil || vmi.Status.VirtualMachineRevisionName == "" {
		return nil
	}
	was := generationOf(vmi)
	if was == 0 || was >= vm.Generation || vm.Spec.Template == nil {
		return nil
	}
	if now, err := digest(vm, vmi); err != nil || now != vmi.Annotations[pod.AnnotationTemplate] {
		return err
	}
	before := vmi.DeepCopy()
	metav1.SetMetaDataAnnotation(&vmi.ObjectMeta, kubevirt.VirtualMachineGenerationAnnotation, strconv.FormatInt(vm.Generation, 10))
	patch := client.MergeFromWithOptions(before, client.MergeFromWithOptimisticLock{})
	if err := r.client.Patch(ctx, vmi, patch); err != nil {
		return client.IgnoreNotFound(fmt.Errorf("note generation %d on VMI %s: %w", vm.Generation, vmi.Name, err))
	}
	return nil
}
