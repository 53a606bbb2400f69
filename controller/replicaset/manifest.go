package replicaset

import (
	"k8s.io/apimachinery/pkg/util/validation/field"
	kubevirt "kubevirt.io/api/core/v1"

	"github.com/nodevirt/nodevirt/controller/manifest"
	"github.com/nodevirt/nodevirt/shim/fields"
)

// Supported returns the fields of a replica set's spec that a manifest may have
// beside its template's spec, which is a VMI's.
func Supported() fields.Supported {
	return fields.Supported{
		Rows: []fields.Row{
			fields.At("replicas", fields.Integer(0, 1<<31-1)),
			fields.At("paused", fields.Boolean),
		},
		Wholes: []fields.Whole{{Path: "selector", Is: "a label selector", Check: manifest.LabelSelector}},
	}.And(manifest.TemplateFields("template"))
}

// CheckManifest decodes a replica set's spec out of a manifest, as
// [manifest.CheckVMI] decodes a VMI's. The selector must select what the template
// creates. The spec is nil if there is a problem.
func CheckManifest(at *field.Path, tree any) (*kubevirt.VirtualMachineInstanceReplicaSetSpec, field.ErrorList) {
	set := new(kubevirt.VirtualMachineInstanceReplicaSetSpec)
	table := Supported().Table(func() any { return new(kubevirt.VirtualMachineInstanceReplicaSetSpec) })
	vmi, problems := manifest.CheckTemplate(at, tree, table, set)
	if set.Template != nil { // else CheckTemplate reports it
		further := manifest.CheckSelector(at.Child("selector"), set.Selector, "template.metadata.labels", set.Template.ObjectMeta.Labels)
		problems = append(problems, fields.Unrelated(further, problems)...)
	}
	if len(problems) > 0 {
		return nil, problems
	}
	set.Template.Spec = *vmi
	return set, nil
}
