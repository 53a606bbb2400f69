package snapshot

import (
	"k8s.io/apimachinery/pkg/util/validation/field"
	api "kubevirt.io/api/snapshot/v1beta1"

	"github.com/nodevirt/nodevirt/controller/admission"
	"github.com/nodevirt/nodevirt/shim/fields"
)

// KubeVirt's finalizers: of a snapshot, of its content, and of its source meanwhile.
const (
	finalizer        = "snapshot.kubevirt.io/vmsnapshot-protection"
	contentFinalizer = "snapshot.kubevirt.io/vmsnapshotcontent-protection"
	sourceFinalizer  = "snapshot.kubevirt.io/snapshot-source-protection"
)

// immutable refuses another spec: a snapshot is of one moment.
const immutable = "spec is immutable after creation"

func rules() admission.Rules {
	return admission.Rules{
		Finalizer: finalizer,
		Check: func(r *admission.Review) field.ErrorList {
			return append(admission.CheckSpec("name the VM in source", CheckManifest)(r), checkMemory(r.Meta.Annotations)...)
		},
		CheckUpdate: admission.SameSpec(immutable),
	}
}

// contentRules leave the VM in a content unchecked: admission checks it when it is restored.
func contentRules() admission.Rules {
	return admission.Rules{Check: checkContent, CheckUpdate: admission.SameSpec(immutable)}
}

// maxBackups bounds the volumes of a content: a VM has fewer.
const maxBackups = 256

func checkContent(r *admission.Review) field.ErrorList {
	at := field.NewPath("spec")
	content := new(api.VirtualMachineSnapshotContent)
	if err := r.Decode(content); err != nil {
		return field.ErrorList{fields.Invalid(at, field.OmitValueType{}, "%s", fields.Excerpt(err.Error()))}
	}
	var problems field.ErrorList
	if vm := content.Spec.Source.VirtualMachine; vm == nil || vm.Spec.Template == nil {
		problems = append(problems, field.Required(at.Child("source", "virtualMachine"), "a VirtualMachine with a template"))
	}
	if n := len(content.Spec.VolumeBackups); n > maxBackups {
		problems = append(problems, field.TooMany(at.Child("volumeBackups"), n, maxBackups))
	}
	return problems
}
