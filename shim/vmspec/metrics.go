package vmspec

import (
	"errors"

	kubevirt "kubevirt.io/api/core/v1"
)

// ReadsNode reports whether the guest of a VMI reads metrics of its node.
func ReadsNode(vmi *kubevirt.VirtualMachineInstanceSpec) bool {
	if vmi.Domain.Devices.DownwardMetrics != nil {
		return true
	}
	for _, v := range vmi.Volumes {
		if v.DownwardMetrics != nil {
			return true
		}
	}
	return false
}

// checkMetrics refuses a guest that reads metrics of its node where no administrator lets it. The shim
// knows no cluster's switches: it knows the annotation of pods that the controller has made.
func (w wishes) checkMetrics() error {
	if w.vmi != nil && !w.metrics && ReadsNode(w.vmi) {
		return errors.New(AnnotationVMI + ": downwardMetrics: the pod has no annotation " + AnnotationDownwardMetrics +
			"; create a VirtualMachineInstance where nodevirt-controller has -downward-metrics")
	}
	return nil
}
