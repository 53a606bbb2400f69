// Package state finds the PVCs of VMs, also those with their persistent state: UEFI variables and TPMs.
package state

import (
	"context"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	kubevirt "kubevirt.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/nodevirt/nodevirt/controller/pod"
	"github.com/nodevirt/nodevirt/internal/bounds"
	"github.com/nodevirt/nodevirt/shim/vmspec"
)

// PVCs returns the PVCs with the contents of a VirtualMachine: the guest's disks, files, memory dump, and persistent
// state, but no ephemeral PVCs.
func PVCs(ctx context.Context, c client.Reader, vm *kubevirt.VirtualMachine) ([]pod.PVC, error) {
	if vm.Spec.Template == nil {
		return nil, nil
	}
	all := slices.DeleteFunc(pod.PVCs(&vm.Spec.Template.Spec), func(use pod.PVC) bool { return use.Ephemeral })
	kept, err := Of(ctx, c, vm)
	if err != nil {
		return nil, err
	}
	if kept != nil {
		all = append(all, pod.PVC{Volume: pod.SavedState(vm.Name), Name: kept.Name, Filesystem: true})
	}
	return all, nil
}

// Of returns the PVC with the persistent state of a VirtualMachine; nil if it keeps none, or has not run yet.
func Of(ctx context.Context, c client.Reader, vm *kubevirt.VirtualMachine) (*corev1.PersistentVolumeClaim, error) {
	if vm.Spec.Template == nil || vmspec.PersistentState(&vm.Spec.Template.Spec) == nil {
		return nil, nil
	}
	all, err := Labelled(ctx, c, vm.Namespace, vm.Name)
	return pod.FindVMState(vm, all), err
}

// Labelled returns the PVCs whose label says that they have the persistent state of the VM of a name.
func Labelled(ctx context.Context, c client.Reader, namespace, name string) ([]corev1.PersistentVolumeClaim, error) {
	var all corev1.PersistentVolumeClaimList
	err := c.List(ctx, &all, client.InNamespace(namespace), client.MatchingLabels{pod.StateLabel: pod.LabelOf(name)}, client.Limit(bounds.StatePVCs+1))
	if err != nil {
		return nil, fmt.Errorf("list the PVCs with persistent state of VM %s/%s: %w", namespace, name, err)
	}
	if len(all.Items) > bounds.StatePVCs {
		return nil, fmt.Errorf("more than %d PVCs have the label %s=%s, and one has the persistent state of VM %s/%s: remove the label from the others",
			bounds.StatePVCs, pod.StateLabel, pod.LabelOf(name), namespace, name)
	}
	return all.Items, nil
}
