package migration

import (
	"context"

	kubevirt "kubevirt.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/nodevirt/nodevirt/controller/control"
	"github.com/nodevirt/nodevirt/controller/hotplug"
	"github.com/nodevirt/nodevirt/controller/kind"
	instances "github.com/nodevirt/nodevirt/controller/vmi"
)

// Kind describes VirtualMachineInstanceMigrations.
func Kind() kind.Kind {
	return kind.Kind{
		Version: kubevirt.SchemeGroupVersion,
		Older:   "v1alpha3",
		Object:  func() client.Object { return new(kubevirt.VirtualMachineInstanceMigration) },
		List:    func() client.ObjectList { return new(kubevirt.VirtualMachineInstanceMigrationList) },
		Cached:  true,
		CRD: kind.CRD{
			ShortNames: []string{"vmim", "vmims"},
			Columns: []kind.Column{
				{
					Name: "Phase", Type: "string", JSONPath: ".status.phase",
					Description: "The current phase of VM instance migration",
				},
				{
					Name: "VMI", Type: "string", JSONPath: ".spec.vmiName",
					Description: "The name of the VMI to perform the migration on",
				},
				kind.Age(),
			},
			Status: true,
		},
		Access: kind.Access{
			Object: []string{"get", "list", "watch", "create", "patch", "delete"},
			Status: []string{"patch"},
		},
		Admission: rules(),
		Fields:    []kind.FieldList{{Name: "migrations", Fields: Supported(), Check: kind.Checked(CheckManifest)}},
		SetUp:     setUp,
	}
}

func setUp(ctx context.Context, in kind.Cluster) error {
	m := in.Manager
	nodes, err := control.ForConfig(m.GetConfig())
	if err != nil {
		return err
	}
	vmis, err := instances.New(in)
	if err != nil {
		return err
	}
	r := NewReconciler(Options{
		Client: m.GetClient(), Live: m.GetAPIReader(), Events: in.Events("virtualmachineinstance-migration-controller"),
		Pods: vmis.Pods, Config: in.Config, Nodes: nodes, Now: in.Now,
		Volumes: &hotplug.Moves{Client: m.GetClient(), Events: in.Events("virtualmachine-controller"), Holder: in.Holder},
	})
	if err := r.SetUp(ctx, m); err != nil {
		return err
	}
	e := &Evacuations{Client: m.GetClient(), Config: in.Config, Events: r.events, Now: in.Now}
	return e.SetUp(m)
}
