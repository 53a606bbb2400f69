package vm

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	kubevirt "kubevirt.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/nodevirt/nodevirt/controller/pod"
)

// pvcNames returns the names of a VirtualMachine's PVCs, for the index.
func pvcNames(o client.Object) []string {
	var names []string
	for _, use := range pvcs(o.(*kubevirt.VirtualMachine)) {
		names = append(names, use.Name)
	}
	return names
}

func pvcs(vm *kubevirt.VirtualMachine) []pod.PVC {
	if vm.Spec.Template == nil {
		return nil
	}
	return pod.PVCs(&vm.Spec.Template.Spec)
}

// unbound reports whether a PVC of a VirtualMachine exists and is not bound to a volume.
func (r *Reconciler) unbound(ctx context.Context, vm *kubevirt.VirtualMachine) (bool, error) {
	if vm.Spec.Template == nil {
		return false, nil
	}
	starting := without(&vm.Spec.Template.Spec, pod.AfterStart(&vm.Spec.Template.Spec))
	for _, use := range pod.PVCs(&starting) {
		pvc := new(corev1.PersistentVolumeClaim)
		switch err := r.client.Get(ctx, client.ObjectKey{Namespace: vm.Namespace, Name: use.Name}, pvc); {
		case apierrors.IsNotFound(err):
		case err != nil:
			return false, fmt.Errorf("read PVC %s/%s: %w", vm.Namespace, use.Name, err)
		case pvc.Status.Phase != corev1.ClaimBound:
			return true, nil
		}
	}
	return false, nil
}
