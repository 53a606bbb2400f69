package record

import (
	"k8s.io/apimachinery/pkg/api/validation"
	kubevirt "kubevirt.io/api/core/v1"
)

// InstanceName returns the name of the VirtualMachineInstance whose VM it is, by the annotation that its controller
// writes on the pod; the pod's name for a pod that is of none.
func (r Container) InstanceName() string {
	name := r.Sandbox.Value.GetAnnotations()[kubevirt.DomainAnnotation]
	if len(validation.NameIsDNSSubdomain(name, false)) > 0 {
		return r.Sandbox.Value.GetMetadata().GetName()
	}
	return name
}
