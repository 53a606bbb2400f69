package backup

import (
	"k8s.io/apimachinery/pkg/util/validation/field"
	api "kubevirt.io/api/backup/v1alpha1"
	kubevirt "kubevirt.io/api/core/v1"

	"github.com/nodevirt/nodevirt/controller/admission"
	"github.com/nodevirt/nodevirt/controller/export"
	"github.com/nodevirt/nodevirt/shim/fields"
)

// The kinds of sources.
const (
	kindVM      = "VirtualMachine"
	kindTracker = "VirtualMachineBackupTracker"
)

// immutable is the refusal of a change, in KubeVirt's words.
const immutable = "spec is immutable after creation"

func rules() admission.Rules {
	return admission.Rules{Check: admission.CheckSpec("name the source", CheckManifest), CheckUpdate: admission.SameSpec(immutable)}
}

func trackerRules() admission.Rules {
	return admission.Rules{Check: admission.CheckSpec("name the source", CheckTracker), CheckUpdate: admission.SameSpec(immutable)}
}

// Supported returns the fields of a backup's spec that a manifest may have.
func Supported() fields.Supported {
	return fields.Supported{
		Rows: []fields.Row{
			fields.At("source.apiGroup", fields.OneOf(kubevirt.GroupVersion.Group, api.SchemeGroupVersion.Group)),
			fields.At("source.kind", fields.OneOf(kindVM, kindTracker)),
			fields.At("source.name", fields.Subdomain),
			fields.At("mode", fields.OneOf(api.PushMode, api.PullMode)),
			fields.At("pvcName", fields.Subdomain),
			fields.At("skipQuiesce", fields.Boolean),
			fields.At("forceFullBackup", fields.Boolean),
			fields.At("tokenSecretRef", fields.Subdomain),
			fields.At("ttlDuration", export.Duration),
		},
	}
}

// CheckManifest decodes a backup's spec out of a manifest. The spec is nil if there is a problem.
func CheckManifest(at *field.Path, tree any) (*api.VirtualMachineBackupSpec, field.ErrorList) {
	table := Supported().Table(func() any { return new(api.VirtualMachineBackupSpec) })
	spec, problems := fields.CheckAs[api.VirtualMachineBackupSpec](table, at, tree)
	if len(problems) > 0 {
		return nil, problems
	}
	source, want := at.Child("source"), map[string]string{kindVM: kubevirt.GroupVersion.Group, kindTracker: api.SchemeGroupVersion.Group}
	switch group := want[spec.Source.Kind]; {
	case spec.Source.Kind == "":
		problems = append(problems, field.Required(source.Child("kind"), "what is backed up"))
	case spec.Source.APIGroup == nil || *spec.Source.APIGroup != group:
		problems = append(problems, field.Required(source.Child("apiGroup"), group+" for a "+spec.Source.Kind))
	}
	if spec.Source.Name == "" {
		problems = append(problems, field.Required(source.Child("name"), "the name of what is backed up"))
	}
	if spec.PvcName == nil || *spec.PvcName == "" {
		problems = append(problems, field.Required(at.Child("pvcName"), "the name of the PVC for the files"))
	}
	problems = append(problems, checkMode(at, spec)...)
	if len(problems) > 0 {
		return nil, problems
	}
	return spec, nil
}

// checkMode returns what is wrong with the fields of mode Pull.
func checkMode(at *field.Path, spec *api.VirtualMachineBackupSpec) (problems field.ErrorList) {
	switch {
	case pulls(spec) && spec.TokenSecretRef == "":
		problems = append(problems, field.Required(at.Child("tokenSecretRef"), "the name of the Secret whose key token the readers send"))
	case !pulls(spec) && spec.TokenSecretRef != "":
		problems = append(problems, field.Forbidden(at.Child("tokenSecretRef"), "it belongs to mode Pull"))
	}
	if !pulls(spec) && spec.TTLDuration != nil {
		problems = append(problems, field.Forbidden(at.Child("ttlDuration"), "it belongs to mode Pull"))
	}
	return problems
}

// pulls reports whether a backup is in mode Pull.
func pulls(spec *api.VirtualMachineBackupSpec) bool {
	return spec.Mode != nil && *spec.Mode == api.PullMode
}

// SupportedTracker returns the fields of a tracker's spec that a manifest may have.
func SupportedTracker() fields.Supported {
	return fields.Supported{
		Rows: []fields.Row{
			fields.At("source.apiGroup", fields.OneOf(kubevirt.GroupVersion.Group)),
			fields.At("source.kind", fields.OneOf(kindVM)),
			fields.At("source.name", fields.Subdomain),
		},
	}
}

// CheckTracker decodes a tracker's spec out of a manifest. The spec is nil if there is a problem.
func CheckTracker(at *field.Path, tree any) (*api.VirtualMachineBackupTrackerSpec, field.ErrorList) {
	table := SupportedTracker().Table(func() any { return new(api.VirtualMachineBackupTrackerSpec) })
	spec, problems := fields.CheckAs[api.VirtualMachineBackupTrackerSpec](table, at, tree)
	if len(problems) > 0 {
		return nil, problems
	}
	source := at.Child("source")
	if g := spec.Source.APIGroup; g == nil {
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
