package migrationpolicy

import (
	"k8s.io/apimachinery/pkg/util/validation/field"
	migrations "kubevirt.io/api/migrations/v1alpha1"

	"github.com/nodevirt/nodevirt/controller/manifest"
	"github.com/nodevirt/nodevirt/shim/fields"
)

// maxPerGiB bounds the time for a GiB, in seconds.
const maxPerGiB = 1 << 31

// Supported returns the fields of a policy's spec that a manifest may have. Values that ask
// for what nodes cannot do are refused: a policy that silently had no effect would be found
// out when it is needed.
func Supported() fields.Supported {
	return fields.Supported{
		Rows: []fields.Row{
			fields.At("allowAutoConverge", fields.Boolean),
			fields.At("allowPostCopy", fields.Only(false)),
			fields.At("allowWorkloadDisruption", fields.Boolean),
			fields.At("bandwidthPerMigration", fields.Quantity),
			fields.At("completionTimeoutPerGiB", fields.Integer(0, maxPerGiB)),
		},
		Wholes: []fields.Whole{
			{Path: "selectors.namespaceSelector", Is: "a map of labels", Check: manifest.LabelMap},
			{Path: "selectors.virtualMachineInstanceSelector", Is: "a map of labels", Check: manifest.LabelMap},
		},
	}
}

// CheckManifest decodes a policy's spec out of a manifest. The spec is nil if there is a
// problem.
func CheckManifest(at *field.Path, tree any) (*migrations.MigrationPolicySpec, field.ErrorList) {
	if tree == nil {
		return nil, field.ErrorList{field.Required(at, "set selectors")}
	}
	table := Supported().Table(func() any { return new(migrations.MigrationPolicySpec) })
	spec, problems := fields.CheckAs[migrations.MigrationPolicySpec](table, at, tree)
	if len(problems) == 0 && spec.Selectors == nil {
		problems = append(problems, field.Required(at.Child("selectors"), "the policy would be of no VMI; {} selects all"))
	}
	if len(problems) > 0 {
		return nil, problems
	}
	return spec, nil
}
