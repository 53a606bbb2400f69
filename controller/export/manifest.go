package export

import (
	"time"

	"k8s.io/apimachinery/pkg/util/validation/field"
	backupapi "kubevirt.io/api/backup/v1alpha1"
	kubevirt "kubevirt.io/api/core/v1"
	api "kubevirt.io/api/export/v1"
	snapshotapi "kubevirt.io/api/snapshot/v1beta1"

	"github.com/nodevirt/nodevirt/controller/admission"
	"github.com/nodevirt/nodevirt/shim/fields"
)

// The kinds that can be exported.
const (
	kindPVC      = "PersistentVolumeClaim"
	kindVM       = "VirtualMachine"
	kindSnapshot = "VirtualMachineSnapshot"
	// kindBackup is that of exports that backups create.
	kindBackup = "VirtualMachineBackup"
)

// groups are the API groups of the kinds.
func groups() map[string]string {
	return map[string]string{kindPVC: "", kindVM: kubevirt.GroupVersion.Group, kindSnapshot: snapshotapi.SchemeGroupVersion.Group, kindBackup: backupapi.SchemeGroupVersion.Group}
}

func rules() admission.Rules {
	return admission.Rules{
		Check: func(r *admission.Review) field.ErrorList {
			return append(admission.CheckSpec("name the source", CheckManifest)(r), checkPush(r)...)
		},
		CheckUpdate: func(r *admission.Review) field.ErrorList {
			return append(admission.SameSpec("spec is immutable after creation")(r), samePush(r)...)
		},
	}
}

// Supported returns the fields of an export's spec that a manifest may have.
func Supported() fields.Supported {
	return fields.Supported{
		Rows: []fields.Row{
			fields.At("source.apiGroup", fields.OneOf("", kubevirt.GroupVersion.Group, snapshotapi.SchemeGroupVersion.Group, backupapi.SchemeGroupVersion.Group)),
			fields.At("source.kind", fields.OneOf(kindPVC, kindVM, kindSnapshot, kindBackup)),
			fields.At("source.name", fields.Subdomain),
			fields.At("tokenSecretRef", fields.Subdomain),
			fields.At("ttlDuration", Duration),
		},
	}
}

// Duration takes a duration of Go.
func Duration(at *field.Path, value any) *field.Error {
	return fields.String(func(at *field.Path, s string) *field.Error {
		if d, err := time.ParseDuration(s); err != nil || d <= 0 {
			return fields.Invalid(at, s, "must be a duration such as 30m or 2h")
		}
		return nil
	})(at, value)
}

// CheckManifest decodes an export's spec out of a manifest. The spec is nil if there is a problem.
func CheckManifest(at *field.Path, tree any) (*api.VirtualMachineExportSpec, field.ErrorList) {
	table := Supported().Table(func() any { return new(api.VirtualMachineExportSpec) })
	spec, problems := fields.CheckAs[api.VirtualMachineExportSpec](table, at, tree)
	if len(problems) > 0 {
		return nil, problems
	}
	source := at.Child("source")
	given := ""
	if g := spec.Source.APIGroup; g != nil {
		given = *g
	}
	switch group, known := groups()[spec.Source.Kind]; {
	case !known:
		problems = append(problems, field.Required(source.Child("kind"), "what is exported"))
	case given == group:
	case group == "":
		problems = append(problems, fields.Invalid(source.Child("apiGroup"), given, "must be empty for a %s", kindPVC))
	default:
		problems = append(problems, fields.Invalid(source.Child("apiGroup"), given, "must be %s for a %s", group, spec.Source.Kind))
	}
	if spec.Source.Name == "" {
		problems = append(problems, field.Required(source.Child("name"), "the name of what is exported"))
	}
	if len(problems) > 0 {
		return nil, problems
	}
	return spec, nil
}
