package export

import (
	"context"

	api "kubevirt.io/api/export/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/nodevirt/nodevirt/controller/datavolume"
	"github.com/nodevirt/nodevirt/controller/kind"
	instances "github.com/nodevirt/nodevirt/controller/vmi"
	"github.com/nodevirt/nodevirt/controller/volumesnapshot"
)

// Kind describes VirtualMachineExports.
func Kind() kind.Kind {
	return kind.Kind{
		Version: api.SchemeGroupVersion,
		Older:   "v1beta1",
		Object:  func() client.Object { return new(vmExport) },
		List:    func() client.ObjectList { return new(vmExportList) },
		Cached:  true,
		CRD: kind.CRD{
			ShortNames: []string{"vmexport", "vmexports"},
			Columns: []kind.Column{
				{Name: "SourceKind", Type: "string", JSONPath: ".spec.source.kind"},
				{Name: "SourceName", Type: "string", JSONPath: ".spec.source.name"},
				{Name: "Phase", Type: "string", JSONPath: ".status.phase"},
			},
			Status: true,
		},
		Access: kind.Access{
			Object:     []string{"get", "list", "watch", "create", "delete"},
			Status:     []string{"patch"},
			Finalizers: []string{"update"},
		},
		Admission: rules(),
		Fields:    []kind.FieldList{{Name: "exports", Fields: Supported(), Check: kind.Checked(CheckManifest)}},
		SetUp:     setUp,
	}
}

func setUp(ctx context.Context, in kind.Cluster) error {
	m := in.Manager
	dataVolumes, err := datavolume.New(m.GetConfig())
	if err != nil {
		return err
	}
	snapshots, err := volumesnapshot.New(m.GetConfig())
	if err != nil {
		return err
	}
	vmis, err := instances.New(in)
	if err != nil {
		return err
	}
	return NewReconciler(Options{
		Client: m.GetClient(), Live: in.Uncached, DataVolumes: dataVolumes, Snapshots: snapshots, Pods: vmis.Pods,
		Events: in.Events("export-controller"), Image: in.ExportImage, Support: in.Holder.Support,
		ProxyNamespace: in.ExportProxyNamespace, Now: in.Now,
	}).SetUp(ctx, m)
}
