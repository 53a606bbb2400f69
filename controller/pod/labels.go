package pod

import (
	"crypto/sha1" //nolint:gosec // KubeVirt's, of no secret
	"encoding/hex"
	"maps"

	kubevirt "kubevirt.io/api/core/v1"
)

// LabelValue is the value of [kubevirt.AppLabel] by which pods of instances are
// found. It is KubeVirt's, and people's network policies go by it.
const LabelValue = "virt-launcher"

// On a PVC that was restored from a snapshot these name the VM of the snapshot, as KubeVirt's do.
const (
	RestoredLabel          = "restore.kubevirt.io/source-vm-name"
	RestoredNamespaceLabel = "restore.kubevirt.io/source-vm-namespace"
)

// labels are the instance's own with KubeVirt's over them.
func labels(vmi *kubevirt.VirtualMachineInstance) map[string]string {
	all := map[string]string{kubevirt.DomainAnnotation: clip(vmi.Name, maxLabel)}
	maps.Copy(all, vmi.Labels)
	all[kubevirt.AppLabel] = LabelValue
	all[kubevirt.CreatedByLabel] = string(vmi.UID)
	all[kubevirt.DeprecatedVirtualMachineNameLabel] = clip(vmi.Name, maxLabel)
	all[kubevirt.VirtualMachineInstanceIDLabel] = LabelOf(vmi.Name)
	return all
}

// LabelOf returns the value by which a label names an instance or a VirtualMachine, as KubeVirt computes it: the
// name, or, where that is too long, its beginning and a hash.
func LabelOf(name string) string {
	if len(name) <= maxLabel {
		return name
	}
	sum := sha1.Sum([]byte(name)) //nolint:gosec // as above
	return name[:maxLabel-9] + "-" + hex.EncodeToString(sum[:])[:8]
}
