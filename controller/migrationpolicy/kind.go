package migrationpolicy

import (
	migrations "kubevirt.io/api/migrations/v1alpha1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/nodevirt/nodevirt/controller/kind"
)

// Kind describes MigrationPolicies. They have no reconciler: migrations read them.
func Kind() kind.Kind {
	return kind.Kind{
		Version: migrations.SchemeGroupVersion,
		Object:  func() client.Object { return new(migrations.MigrationPolicy) },
		List:    func() client.ObjectList { return new(migrations.MigrationPolicyList) },
		Cached:  true,
		CRD:     kind.CRD{ClusterScoped: true},
		Access:  kind.Access{Object: []string{"get", "list", "watch"}},

		Admission: rules(),
		Fields:    []kind.FieldList{{Name: "migration policies", Fields: Supported(), Check: kind.Checked(CheckManifest)}},
	}
}
