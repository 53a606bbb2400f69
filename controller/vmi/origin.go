package vmi

import (
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	kubevirt "kubevirt.io/api/core/v1"
)

// origin is the instance that a pod was created for.
type origin struct {
	name string
	uid  types.UID
}

// originOf returns a pod's origin; false if the pod is of no instance. A pod whose
// instance is deleted with --cascade=orphan loses its owner and keeps its guest: a
// label and an annotation of the controller identify it then.
func originOf(p *corev1.Pod) (origin, bool) {
	if owner := metav1.GetControllerOf(p); owner != nil {
		ours := owner.Kind == kubevirt.VirtualMachineInstanceGroupVersionKind.Kind
		return origin{owner.Name, owner.UID}, ours
	}
	from := origin{p.Annotations[kubevirt.DomainAnnotation], types.UID(p.Labels[kubevirt.CreatedByLabel])}
	return from, from.name != "" && from.uid != ""
}
