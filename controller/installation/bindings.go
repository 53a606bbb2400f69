package installation

import (
	"maps"
	"slices"

	"k8s.io/apimachinery/pkg/util/validation/field"
	kubevirt "kubevirt.io/api/core/v1"

	"github.com/nodevirt/nodevirt/shim/fields"
	"github.com/nodevirt/nodevirt/shim/vmspec"
)

// maxImage bounds the reference of an image, in bytes.
const maxImage = 1024

// bindingFields returns the fields of a registration of a network binding plug-in.
func bindingFields() fields.Supported {
	return fields.Supported{
		Rows: []fields.Row{
			fields.At("computeResourceOverhead.requests.memory", fields.Bytes),
			fields.At("domainAttachmentType", fields.OneOf(kubevirt.Tap, kubevirt.ManagedTap)),
			fields.At("migration", fields.Object),
			fields.At("networkAttachmentDefinition", vmspec.Supported().Takes("networks[].multus.networkName")),
			fields.At("sidecarImage", fields.Text(maxImage)),
		},
		Hints: map[string]string{
			"computeResourceOverhead.limits": "use requests.memory",
			"downwardAPI":                    "sidecars get no information of devices",
			"migration.method":               "use migration: {}: a guest that migrates announces its address itself",
		},
	}
}

// bindings checks the network binding plug-ins of the object, by their names.
func bindings(at *field.Path, value any) field.ErrorList {
	all, ok := value.(map[string]any)
	if !ok {
		return field.ErrorList{fields.WrongType(at, value, "an object")}
	}
	if len(all) > vmspec.MaxBindings {
		return field.ErrorList{field.TooMany(at, len(all), vmspec.MaxBindings)}
	}
	table := bindingFields().Table(func() any { return new(kubevirt.InterfaceBindingPlugin) })
	var problems field.ErrorList
	for _, name := range slices.Sorted(maps.Keys(all)) {
		at := at.Key(fields.Excerpt(name))
		if err := vmspec.BindingName(at, name); err != nil {
			problems = append(problems, err)
			continue
		}
		plugin, p := fields.CheckAs[kubevirt.InterfaceBindingPlugin](table, at, all[name])
		problems = append(problems, p...)
		if len(p) == 0 && plugin.DomainAttachmentType == "" {
			problems = append(problems, field.Required(at.Child("domainAttachmentType"),
				"tap or managedTap: libvirt is the node's, and a sidecar can't add a network card"))
		}
	}
	return problems
}
