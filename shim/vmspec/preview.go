package vmspec

import (
	"errors"

	"k8s.io/apimachinery/pkg/util/validation/field"
	kubevirt "kubevirt.io/api/core/v1"
)

// Preview returns the VM that a VMI's spec describes, as far as the spec decides
// that without its pod, and every contradiction between the spec's fields. The
// spec must have passed the table of [Supported]. Memory is 0 where the limit of
// the pod's container decides; a seed comes with the pod.
func Preview(at *field.Path, vmi *kubevirt.VirtualMachineInstanceSpec) (Spec, field.ErrorList) {
	t, problems := translate(at, vmi, request{})
	return t.Spec, problems
}

// CheckAnnotations checks annotations as [ValidateSandbox] does. VMI is the spec
// that they belong to; nil stands for the one in the annotations, if any.
func CheckAnnotations(annotations map[string]string, vmi *kubevirt.VirtualMachineInstanceSpec) error {
	w, err := readAnnotations(annotations)
	if err != nil {
		return err
	}
	if vmi != nil { // its pod will have the annotations that its author can't write
		w.vmi = vmi
		return checkSeed(w)
	}
	return errors.Join(checkSeed(w), w.checkBindings())
}

// CheckMemory returns why a VM cannot have this many bytes of memory; nil if it can.
func CheckMemory(bytes int64) error {
	_, err := ram(bytes)
	return err
}

// CheckCPUFeatures checks a list of CPU features, whose names and policies the
// table of fields has checked.
func CheckCPUFeatures(at *field.Path, features []kubevirt.CPUFeature) field.ErrorList {
	_, problems := cpuFeatures(at, features)
	return problems
}
