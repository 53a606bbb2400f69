package vm

import (
	"k8s.io/apimachinery/pkg/util/validation/field"
	kubevirt "kubevirt.io/api/core/v1"

	"github.com/nodevirt/nodevirt/controller/manifest"
	"github.com/nodevirt/nodevirt/controller/pod"
	"github.com/nodevirt/nodevirt/shim/fields"
	"github.com/nodevirt/nodevirt/shim/vmspec"
)

// dataVolumeFields are those of templates of DataVolumes. CDI, where it is, checks the
// values that only CDI understands.
func dataVolumeFields() fields.Supported {
	const at = "dataVolumeTemplates[]."
	return fields.Supported{
		Rows: []fields.Row{
			fields.At("dataVolumeTemplates", fields.List(vmspec.MaxDisks)),
			fields.At(at+"apiVersion", fields.Text(fields.MaxLabel)),
			fields.At(at+"kind", fields.OneOf("DataVolume")),
			fields.At(at+"metadata.name", fields.Subdomain),
			fields.At(at+"metadata.namespace", fields.Label),
			fields.At(at+"status", fields.Object),
		},
		Wholes: []fields.Whole{
			{Path: at + "metadata.labels", Is: "a map of labels", Check: manifest.LabelMap},
			{Path: at + "metadata.annotations", Is: "a map of annotations", Check: manifest.AnnotationMap},
			{Path: at + "spec", Is: "a DataVolume's spec", Check: checkDataVolume},
		},
	}
}

// checkDataVolume checks the spec of a DataVolume as CDI does.
func checkDataVolume(at *field.Path, value any) field.ErrorList {
	var t kubevirt.DataVolumeTemplateSpec
	if err := fields.Decode(map[string]any{"spec": value}, &t); err != nil {
		return field.ErrorList{fields.Invalid(at, field.OmitValueType{}, "%s", fields.Excerpt(err.Error()))}
	}
	var problems field.ErrorList
	s := &t.Spec
	if (s.PVC == nil) == (s.Storage == nil) {
		problems = append(problems, field.Required(at, "one of pvc and storage, which describe the PVC"))
	}
	external := s.PVC != nil && (s.PVC.DataSource != nil || s.PVC.DataSourceRef != nil) ||
		s.Storage != nil && (s.Storage.DataSource != nil || s.Storage.DataSourceRef != nil)
	sources := 0
	for _, given := range []bool{s.Source != nil, s.SourceRef != nil, external} {
		if given {
			sources++
		}
	}
	if sources != 1 {
		problems = append(problems, field.Required(at, "one of source, sourceRef and dataSource, which say what the PVC holds"))
	}
	if tree, _ := value.(map[string]any); s.Source != nil {
		if source, _ := tree["source"].(map[string]any); len(source) != 1 {
			problems = append(problems, field.Required(at.Child("source"), "one source, such as registry or blank"))
		}
	}
	return problems
}

// checkTemplates finds what no template of a DataVolume shows by itself.
func checkTemplates(at *field.Path, vm *kubevirt.VirtualMachineSpec, vmi *kubevirt.VirtualMachineInstanceSpec) field.ErrorList {
	var problems field.ErrorList
	used, names := map[string]bool{}, map[string]bool{}
	if vmi != nil {
		for _, use := range pod.PVCs(vmi) {
			used[use.Name] = true
		}
	}
	for i, t := range vm.DataVolumeTemplates {
		name := at.Child("dataVolumeTemplates").Index(i).Child("metadata", "name")
		switch {
		case t.Name == "":
			problems = append(problems, field.Required(name, ""))
		case names[t.Name]:
			problems = append(problems, field.Duplicate(name, t.Name))
		case vmi != nil && !used[t.Name]:
			problems = append(problems, fields.Invalid(name, t.Name, "no volume of the template names it"))
		}
		names[t.Name] = true
	}
	return problems
}
