package snapshot

import (
	"reflect"

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

func rules() admission.Rules {
	return admission.Rules{Finalizer: finalizer, Check: check, CheckUpdate: checkUpdate}
}

func check(r *admission.Review) field.ErrorList {
	spec := field.NewPath("spec")
	tree := r.Object["spec"]
	if tree == nil {
		return field.ErrorList{field.Required(spec, "name the VM in source")}
	}
	_, problems := CheckManifest(spec, tree)
	return problems
}

// checkUpdate refuses another spec: a snapshot is of one moment.
func checkUpdate(r *admission.Review) field.ErrorList {
	if reflect.DeepEqual(r.Old["spec"], r.Object["spec"]) {
		return nil
	}
	return field.ErrorList{field.Forbidden(field.NewPath("spec"), "spec is immutable after creation")}
}

// contentRules leave the VM in a content unchecked: admission checks it when it is restored.
func contentRules() admission.Rules {
	return admission.Rules{Check: checkContent, CheckUpdate: checkUpdate}
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
