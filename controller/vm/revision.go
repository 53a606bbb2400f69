package vm

import (
	"context"
	"encoding/json"
	"fmt"
	"strconv"

	appsv1 "k8s.io/api/apps/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	kubevirt "kubevirt.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/nodevirt/nodevirt/controller/pod"
)

// keepRevision creates the ControllerRevision of the spec that the next instance is
// created from, with KubeVirt's name and content, and deletes that of the instance
// before.
func (r *Reconciler) keepRevision(ctx context.Context, vm *kubevirt.VirtualMachine) error {
	text, err := json.Marshal(map[string]any{"spec": revisionSpec(vm)})
	if err != nil {
		return fmt.Errorf("encode the spec of VM %s: %w", vm.Name, err)
	}
	made := revision(vm, vm.Generation)
	made.OwnerReferences = []metav1.OwnerReference{*metav1.NewControllerRef(vm, kubevirt.VirtualMachineGroupVersionKind)}
	made.Data, made.Revision = runtime.RawExtension{Raw: text}, vm.Generation
	if err := r.Revisions.Create(ctx, made); err != nil && !apierrors.IsAlreadyExists(err) {
		return fmt.Errorf("create ControllerRevision %s: %w", made.Name, err)
	}
	former := vm.Status.ObservedGeneration // of the last instance
	if former == 0 || former == vm.Generation {
		return nil
	}
	if err := r.Revisions.Delete(ctx, revision(vm, former)); client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("delete ControllerRevision %s: %w", pod.RevisionName(vm.UID, strconv.FormatInt(former, 10)), err)
	}
	return nil
}

func revision(vm *kubevirt.VirtualMachine, generation int64) *appsv1.ControllerRevision {
	return &appsv1.ControllerRevision{ObjectMeta: metav1.ObjectMeta{
		Namespace: vm.Namespace, Name: pod.RevisionName(vm.UID, strconv.FormatInt(generation, 10)),
	}}
}

// revisionSpec returns the spec with the revisions of its instance type and preference.
func revisionSpec(vm *kubevirt.VirtualMachine) *kubevirt.VirtualMachineSpec {
	spec := vm.Spec.DeepCopy()
	if of := vm.Status.InstancetypeRef; spec.Instancetype != nil && of != nil && of.ControllerRevisionRef != nil {
		spec.Instancetype.RevisionName = of.ControllerRevisionRef.Name
	}
	if of := vm.Status.PreferenceRef; spec.Preference != nil && of != nil && of.ControllerRevisionRef != nil {
		spec.Preference.RevisionName = of.ControllerRevisionRef.Name
	}
	return spec
}
