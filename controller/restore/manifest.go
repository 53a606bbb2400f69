package restore

import (
	"fmt"
	"strings"

	jsonpatch "github.com/evanphx/json-patch/v5"
	"k8s.io/apimachinery/pkg/util/validation/field"
	kubevirt "kubevirt.io/api/core/v1"
	api "kubevirt.io/api/snapshot/v1beta1"

	"github.com/nodevirt/nodevirt/controller/decode"
	"github.com/nodevirt/nodevirt/controller/manifest"
	"github.com/nodevirt/nodevirt/shim/fields"
)

const kindVM = "VirtualMachine"

const (
	// MaxPatches bounds the patches of a restore.
	MaxPatches = 256
	// MaxPatch bounds a patch, in bytes.
	MaxPatch = 16 << 10
)

// Supported returns the fields of a restore's spec that a manifest may have.
func Supported() fields.Supported {
	const override = "volumeRestoreOverrides[]."
	return fields.Supported{
		Rows: []fields.Row{
			fields.At("target.apiGroup", fields.OneOf(kubevirt.GroupVersion.Group)),
			fields.At("target.kind", fields.OneOf(kindVM)),
			fields.At("target.name", fields.Subdomain),
			fields.At("virtualMachineSnapshotName", fields.Subdomain),
			fields.At("targetReadinessPolicy", fields.OneOf(api.VirtualMachineRestoreStopTarget,
				api.VirtualMachineRestoreWaitGracePeriodAndFail, api.VirtualMachineRestoreFailImmediate, api.VirtualMachineRestoreWaitEventually)),
			fields.At("volumeRestorePolicy", fields.OneOf(api.VolumeRestorePolicyRandomizeNames, api.VolumeRestorePolicyInPlace,
				api.VolumeRestorePolicyPrefixTargetName)),
			fields.At("volumeOwnershipPolicy", fields.OneOf(api.VolumeOwnershipPolicyVm, api.VolumeOwnershipPolicyNone)),
			fields.At(override+"volumeName", fields.Label),
			fields.At(override+"restoreName", fields.Subdomain),
			fields.At("patches", fields.List(MaxPatches)),
			fields.At("patches[]", fields.Text(MaxPatch)),
		},
		Wholes: []fields.Whole{
			{Path: override + "labels", Is: "a map of labels", Check: manifest.LabelMap},
			{Path: override + "annotations", Is: "a map of annotations", Check: manifest.AnnotationMap},
		},
	}
}

// CheckManifest decodes a restore's spec out of a manifest. The spec is nil if there is a
// problem.
func CheckManifest(at *field.Path, tree any) (*api.VirtualMachineRestoreSpec, field.ErrorList) {
	table := Supported().Table(func() any { return new(api.VirtualMachineRestoreSpec) })
	spec, problems := fields.CheckAs[api.VirtualMachineRestoreSpec](table, at, tree)
	if len(problems) > 0 {
		return nil, problems
	}
	target := at.Child("target")
	if g := spec.Target.APIGroup; g == nil {
		problems = append(problems, field.Required(target.Child("apiGroup"), kubevirt.GroupVersion.Group))
	}
	if spec.Target.Kind == "" {
		problems = append(problems, field.Required(target.Child("kind"), kindVM))
	}
	if spec.Target.Name == "" {
		problems = append(problems, field.Required(target.Child("name"), "the name of a VirtualMachine"))
	}
	if spec.VirtualMachineSnapshotName == "" {
		problems = append(problems, field.Required(at.Child("virtualMachineSnapshotName"), "the name of a VirtualMachineSnapshot"))
	}
	problems = append(problems, CheckPatches(at.Child("patches"), spec.Patches)...)
	if len(problems) > 0 {
		return nil, problems
	}
	return spec, nil
}

// CheckPatches returns what is wrong with the patches of a VM that is created.
func CheckPatches(at *field.Path, patches []string) field.ErrorList {
	if _, err := decodePatches(patches); err != nil {
		return field.ErrorList{fields.Invalid(at, field.OmitValueType{}, "each must be a JSON patch's operation: %s", fields.Excerpt(err.Error()))}
	}
	return nil
}

// decodePatches reads the operations of a JSON patch, each of which is a text.
func decodePatches(all []string) (jsonpatch.Patch, error) {
	text := []byte("[" + strings.Join(all, ",") + "]")
	if err := decode.Check(text); err != nil {
		return nil, err
	}
	patch, err := jsonpatch.DecodePatch(text)
	if err == nil && len(patch) != len(all) {
		err = fmt.Errorf("%d texts have %d operations", len(all), len(patch))
	}
	return patch, err
}
