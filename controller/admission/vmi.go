package admission

import (
	"k8s.io/apimachinery/pkg/util/validation/field"
	kubevirt "kubevirt.io/api/core/v1"

	"github.com/nodevirt/nodevirt/controller/manifest"
)

func (r *review) checkVMI() field.ErrorList {
	meta, spec := field.NewPath("metadata"), field.NewPath("spec")
	problems := checkName(meta, r.meta.Name)
	tree, ok := r.object["spec"]
	if !ok || tree == nil {
		return append(problems, field.Required(spec, "it says what machine this is"))
	}
	vmi, p := manifest.CheckVMI(spec, tree)
	problems = append(problems, p...)
	r.vmi = vmi
	return append(problems, checkAnnotations(meta.Child("annotations"), r.meta.Annotations, vmi)...)
}

// maxName is the length of a label's value: the name is one of its pod's.
const maxName = 63

func checkName(meta *field.Path, name string) field.ErrorList {
	if len(name) > maxName {
		return field.ErrorList{field.TooLong(meta.Child("name"), nil, maxName)}
	}
	return nil
}

// networks is the annotation by which a pod asks Multus for networks.
const networks = "k8s.v1.cni.cncf.io/networks"

// meaningless are annotations that change a machine of KubeVirt's, and would
// change nothing here.
func meaningless() []string {
	return []string{
		"hooks.kubevirt.io/hookSidecars",
		"kubevirt.io/disablePCIHole64",
		"kubevirt.io/ignitiondata",
		"kubevirt.io/placePCIDevicesOnRootComplex",
	}
}

// checkAnnotations checks those of a VMI, whose spec is nil if it isn't sound.
func checkAnnotations(
	at *field.Path, all map[string]string, vmi *kubevirt.VirtualMachineInstanceSpec,
) field.ErrorList {
	problems := manifest.CheckAnnotations(at, all, vmi)
	for _, key := range meaningless() {
		if _, ok := all[key]; ok {
			problems = append(problems, field.Forbidden(at.Key(key), "not supported"))
		}
	}
	if _, ok := all[networks]; !ok || vmi == nil {
		return problems
	}
	for _, n := range vmi.Networks {
		if n.Multus != nil {
			return append(problems, field.Forbidden(at.Key(networks),
				"the networks of the spec say it; use one of them"))
		}
	}
	return problems
}
