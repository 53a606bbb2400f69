package admission

import (
	"maps"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/util/validation/field"
	kubevirt "kubevirt.io/api/core/v1"

	"github.com/nodevirt/nodevirt/controller/manifest"
	"github.com/nodevirt/nodevirt/shim/vmspec"
)

// maxName is the length of a label's value.
const maxName = 63

// CheckName checks the name of an object whose name becomes a label's value.
func CheckName(meta *field.Path, name string) field.ErrorList {
	if len(name) > maxName {
		return field.ErrorList{field.TooLong(meta.Child("name"), nil, maxName)}
	}
	return nil
}

// The annotations by which a pod requests networks of Multus, and one in its place.
const (
	networks       = "k8s.v1.cni.cncf.io/networks"
	defaultNetwork = "v1.multus-cni.io/default-network"
)

// meaningless returns annotations that change a VM of KubeVirt and have no effect
// here.
func meaningless() []string {
	return []string{
		"kubevirt.io/disablePCIHole64",
		"kubevirt.io/placePCIDevicesOnRootComplex",
	}
}

// CheckAnnotations checks the annotations of a VMI or of a template. VMI is its
// spec; nil if that is not sound.
func CheckAnnotations(
	at *field.Path, all map[string]string, vmi *kubevirt.VirtualMachineInstanceSpec,
) field.ErrorList {
	problems := manifest.CheckAnnotations(at, all, vmi)
	for _, key := range meaningless() {
		if _, ok := all[key]; ok {
			problems = append(problems, field.Forbidden(at.Key(key), "not supported"))
		}
	}
	if vmi == nil {
		return problems
	}
	refuse := func(key string, says func(kubevirt.Network) bool) {
		if _, ok := all[key]; ok && slices.ContainsFunc(vmi.Networks, says) {
			problems = append(problems, field.Forbidden(at.Key(key), "the networks of the spec say it; use one of them"))
		}
	}
	refuse(networks, vmspec.IsSecondary)
	refuse(defaultNetwork, vmspec.IsDefault)
	return problems
}

// template returns the path of the template of instances.
func (r *Review) template() *field.Path {
	return field.NewPath("spec", r.rules.Within...).Child("template")
}

// CheckMisplaced refuses the annotations of instances on an object that creates them. Own are the
// object's.
func (r *Review) CheckMisplaced(meta *field.Path, annotations map[string]string, own ...string) field.ErrorList {
	var problems field.ErrorList
	for _, key := range slices.Sorted(maps.Keys(annotations)) {
		if strings.HasPrefix(key, vmspec.AnnotationPrefix) && !slices.Contains(own, key) {
			problems = append(problems, field.Forbidden(meta.Child("annotations").Key(key),
				"belongs to the instance; put it into "+r.template().Child("metadata", "annotations").String()))
		}
	}
	return problems
}

// CheckTemplated checks an object with a template, except for its spec, which it
// returns. Own are the object's own annotations.
func (r *Review) CheckTemplated(own ...string) (any, field.ErrorList) {
	problems := r.CheckMisplaced(field.NewPath("metadata"), r.Meta.Annotations, own...)
	tree := r.Spec()
	if tree == nil {
		problems = append(problems, field.Required(field.NewPath("spec"), "describe the VM here"))
	}
	return tree, problems
}

// CheckTemplate checks a template whose spec is sound.
func (r *Review) CheckTemplate(t *kubevirt.VirtualMachineInstanceTemplateSpec) field.ErrorList {
	r.VMI, r.Annotations = &t.Spec, t.ObjectMeta.Annotations
	return CheckAnnotations(r.template().Child("metadata", "annotations"), t.ObjectMeta.Annotations, r.VMI)
}
