package snapshot

import (
	"time"

	"k8s.io/apimachinery/pkg/util/validation/field"
	kubevirt "kubevirt.io/api/core/v1"
	api "kubevirt.io/api/snapshot/v1beta1"

	"github.com/nodevirt/nodevirt/shim/fields"
)

const kindVM = "VirtualMachine"

// Supported returns the fields of a snapshot's spec that a manifest may have.
func Supported() fields.Supported {
	return fields.Supported{
		Rows: []fields.Row{
			fields.At("source.apiGroup", fields.OneOf(kubevirt.GroupVersion.Group)),
			fields.At("source.kind", fields.OneOf(kindVM)),
			fields.At("source.name", fields.Subdomain),
			fields.At("deletionPolicy", fields.OneOf(api.VirtualMachineSnapshotContentDelete, api.VirtualMachineSnapshotContentRetain)),
			fields.At("failureDeadline", duration),
		},
	}
}

// duration takes a duration of Go.
func duration(at *field.Path, value any) *field.Error {
	return fields.String(func(at *field.Path, s string) *field.Error {
		if d, err := time.ParseDuration(s); err != nil || d < 0 {
			return fields.Invalid(at, s, "must be a duration such as 90s or 5m; 0s is no deadline")
		}
		return nil
	})(at, value)
}

// CheckManifest decodes a snapshot's spec out of a manifest. The spec is nil if there is a
// problem.
func CheckManifest(at *field.Path, tree any) (*api.VirtualMachineSnapshotSpec, field.ErrorList) {
	table := Supported().Table(func() any { return new(api.VirtualMachineSnapshotSpec) })
	spec, problems := fields.CheckAs[api.VirtualMachineSnapshotSpec](table, at, tree)
	if len(problems) > 0 {
		return nil, problems
	}
	source := at.Child("source")
	if g := spec.Source.APIGroup; g == nil || *g != kubevirt.GroupVersion.Group {
		problems = append(problems, field.Required(source.Child("apiGroup"), kubevirt.GroupVersion.Group))
	}
	if spec.Source.Kind == "" {
		problems = append(problems, field.Required(source.Child("kind"), kindVM))
	}
	if spec.Source.Name == "" {
		problems = append(problems, field.Required(source.Child("name"), "the name of a VirtualMachine"))
	}
	if len(problems) > 0 {
		return nil, problems
	}
	return spec, nil
}
