package snapshot

import (
	"context"

	api "kubevirt.io/api/snapshot/v1beta1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/nodevirt/nodevirt/controller/control"
	"github.com/nodevirt/nodevirt/controller/datavolume"
	"github.com/nodevirt/nodevirt/controller/kind"
	instances "github.com/nodevirt/nodevirt/controller/vmi"
	"github.com/nodevirt/nodevirt/controller/volumesnapshot"
)

// Kind describes VirtualMachineSnapshots.
func Kind() kind.Kind {
	return kind.Kind{
		Version: api.SchemeGroupVersion,
		Older:   "v1alpha1",
		Object:  func() client.Object { return new(api.VirtualMachineSnapshot) },
		List:    func() client.ObjectList { return new(api.VirtualMachineSnapshotList) },
		Cached:  true,
		CRD: kind.CRD{
			ShortNames: []string{"vmsnapshot", "vmsnapshots"},
			Columns: []kind.Column{
				{Name: "SourceKind", Type: "string", JSONPath: ".spec.source.kind"},
				{Name: "SourceName", Type: "string", JSONPath: ".spec.source.name"},
				{Name: "Phase", Type: "string", JSONPath: ".status.phase"},
				{Name: "ReadyToUse", Type: "boolean", JSONPath: ".status.readyToUse"},
				{Name: "CreationTime", Type: "date", JSONPath: ".status.creationTime"},
				{Name: "Error", Type: "string", JSONPath: ".status.error.message"},
			},
			Status: true,
		},
		Access: kind.Access{
			Object:     []string{"get", "list", "watch", "create", "patch", "delete"},
			Status:     []string{"patch"},
			Finalizers: []string{"update"},
		},
		Admission: rules(),
		Fields:    []kind.FieldList{{Name: "snapshots", Fields: Supported(), Check: kind.Checked(CheckManifest)}},
		SetUp:     setUp,
	}
}

// ContentKind describes VirtualMachineSnapshotContents.
func ContentKind() kind.Kind {
	return kind.Kind{
		Version: api.SchemeGroupVersion,
		Older:   "v1alpha1",
		Object:  func() client.Object { return new(api.VirtualMachineSnapshotContent) },
		List:    func() client.ObjectList { return new(api.VirtualMachineSnapshotContentList) },
		Cached:  true,
		CRD: kind.CRD{
			ShortNames: []string{"vmsnapshotcontent", "vmsnapshotcontents"},
			Columns: []kind.Column{
				{Name: "ReadyToUse", Type: "boolean", JSONPath: ".status.readyToUse"},
				{Name: "CreationTime", Type: "date", JSONPath: ".status.creationTime"},
				{Name: "Error", Type: "string", JSONPath: ".status.error.message"},
			},
			Status: true,
		},
		Access: kind.Access{
			Object:     []string{"get", "list", "watch", "create", "patch", "delete"},
			Status:     []string{"patch"},
			Finalizers: []string{"update"},
		},
		Admission: contentRules(),
	}
}

func setUp(ctx context.Context, in kind.Cluster) error {
	m := in.Manager
	nodes, err := control.ForConfig(m.GetConfig())
	if err != nil {
		return err
	}
	volumes, err := volumesnapshot.New(m.GetConfig())
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
		Client: m.GetClient(), Live: m.GetAPIReader(), Revisions: in.Uncached, Volumes: volumes, DataVolumes: dataVolumes, Pods: vmis.Pods, Holder: in.Holder,
		Nodes: nodes, Events: in.Events("virtualmachinesnapshot-controller"), Now: in.Now,
	})
	return r.SetUp(ctx, m, volumes.Watch)
}
