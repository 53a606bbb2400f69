package vmi

import (
	"context"
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	kubevirt "kubevirt.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/nodevirt/nodevirt/controller/pod"
)

// mayResume reports whether an instance may go on from its snapshot: no other instance of its
// VirtualMachine will. The disks would not be those of the memory any more.
func mayResume(ctx context.Context, live client.Reader, vmi *kubevirt.VirtualMachineInstance) (bool, error) {
	from, owner := vmi.Annotations[pod.AnnotationResume], metav1.GetControllerOf(vmi)
	if from == "" || owner == nil || owner.Kind != kubevirt.VirtualMachineGroupVersionKind.Kind {
		return true, nil
	}
	vm := new(kubevirt.VirtualMachine)
	err := live.Get(ctx, client.ObjectKey{Namespace: vmi.Namespace, Name: owner.Name}, vm)
	if apierrors.IsNotFound(err) {
		return true, nil
	}
	if err != nil {
		return false, fmt.Errorf("read VM %s: %w", owner.Name, err)
	}
	return vm.Annotations[pod.AnnotationResume] != from, nil
}
