package pod

import (
	"maps"

	kubevirt "kubevirt.io/api/core/v1"
)

// LabelValue is the value of [kubevirt.AppLabel] by which pods of instances are
// found. It is KubeVirt's, and people's network policies go by it.
const LabelValue = "virt-launcher"

// labels are the instance's own with KubeVirt's over them.
func labels(vmi *kubevirt.VirtualMachineInstance) map[string]string {
	all := map[string]string{kubevirt.DomainAnnotation: clip(vmi.Name, maxLabel)}
	maps.Copy(all, vmi.Labels)
	all[kubevirt.AppLabel] = LabelValue
	all[kubevirt.CreatedByLabel] = string(vmi.UID)
	all[kubevirt.DeprecatedVirtualMachineNameLabel] = clip(vmi.Name, maxLabel)
	all[kubevirt.VirtualMachineInstanceIDLabel] = clip(vmi.Name, maxLabel)
	return all
}
