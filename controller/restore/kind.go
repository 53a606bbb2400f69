package restore

import (
	"context"

	api "kubevirt.io/api/snapshot/v1beta1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/nodevirt/nodevirt/controller/datavolume"
	"github.com/nodevirt/nodevirt/controller/kind"
	instances "github.com/nodevirt/nodevirt/controller/vmi"
	"github.com/nodevirt/nodevirt/controller/volumesnapshot"
)

// Kind describes VirtualMachineRestores.
func Kind() kind.Kind {
	return kind.Kind{
		Version: api.SchemeGroupVersion,
		Older:   "v1alpha1",
		Object:  func() client.Object { return new(api.VirtualMachineRestore) },
		List:    func() client.ObjectList { return new(api.VirtualMachineRestoreList) },
		Cached:  true,
		CRD: kind.CRD{
			ShortNames: []string{"vmrestore", "vmrestores"},
			Columns: []kind.Column{
				{Name: "TargetKind", Type: "string", JSONPath: ".spec.target.kind"},
				{Name: "TargetName", Type: "string", JSONPath: ".spec.target.name"},
				{Name: "Complete", Type: "boolean", JSONPath: ".status.complete"},
				{Name: "RestoreTime", Type: "date", JSONPath: ".status.restoreTime"},
			},
			Status: true,
		},
		Access: kind.Access{
			Object:     []string{"get", "list", "watch", "create", "patch", "delete"},
			Status:     []string{"patch"},
			Finalizers: []string{"update"},
		},
		Admission: rules(),
		Fields:    []kind.FieldList{{Name: "restores", Fields: Supported(), Check: kind.Checked(CheckManifest)}},
		SetUp:     setUp,
	}
}

func setUp(ctx context.Context, in kind.Cluster) error {
	m := in.Manager
	snapshots, err := volumesnapshot.New(m.GetConfig())
	if err != nil {
		return err
	}
	dataVolumes, err := datavolume.New(m.GetConfig())
	if err != nil {
		return err
	}
	vmis, err := instances.New(in)
	if err != nil {
		return err
	}
	r := NewReconciler(Options{
		Client: m.GetClient(), Live: m.GetAPIReader(), Uncached: in.Uncached, Snapshots: snapshots, DataVolumes: dataVolumes, Binder: vmis.Consumers,
		Events: in.Events("virtualmachinerestore-controller"), Now: in.Now,
	})
	return r.SetUp(ctx, m)
}
