package admission

import (
	"slices"

	kubevirt "kubevirt.io/api/core/v1"
)

// setFinalizer has a new object stay until the controller has seen to its end. The
// controller would do it too, by a request of its own for each object.
func (r *review) setFinalizer() {
	own := kubevirt.VirtualMachineInstanceFinalizer
	switch r.request.Kind.Kind {
	case kindVM:
		own = kubevirt.VirtualMachineControllerFinalizer
	case kindSet: // its instances go with it, by Kubernetes' garbage collector
		return
	}
	if slices.Contains(r.meta.Finalizers, own) {
		return
	}
	metadata := child(r.object, "metadata")
	all, _ := metadata["finalizers"].([]any)
	metadata["finalizers"] = append(all, own)
}
