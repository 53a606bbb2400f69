package manifest

import (
	"k8s.io/apimachinery/pkg/util/validation/field"
	kubevirt "kubevirt.io/api/core/v1"

	"github.com/nodevirt/nodevirt/shim/fields"
)

// HostDisks returns the problems of an instance's host disks in a cluster that has
// switched them off, in KubeVirt's words; at is the spec's own path.
func HostDisks(at *field.Path, spec *kubevirt.VirtualMachineInstanceSpec) field.ErrorList {
	var problems field.ErrorList
	for i, v := range spec.Volumes {
		if v.HostDisk != nil {
			problems = append(problems, fields.Refused(at.Child("volumes").Index(i).Child("hostDisk"),
				"HostDisk feature gate is not enabled; use a PVC, or set -host-disks of nodevirt-controller"))
		}
	}
	return problems
}
