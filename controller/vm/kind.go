package vm

import (
	"context"

	kubevirt "kubevirt.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/nodevirt/nodevirt/controller/control"
	"github.com/nodevirt/nodevirt/controller/datavolume"
	"github.com/nodevirt/nodevirt/controller/kind"
	"github.com/nodevirt/nodevirt/controller/memory"
	instances "github.com/nodevirt/nodevirt/controller/vmi"
	"github.com/nodevirt/nodevirt/controller/volumesnapshot"
)

// Kind describes VirtualMachines.
func Kind() kind.Kind {
	return kind.Kind{
		Version: kubevirt.SchemeGroupVersion,
		Older:   "v1alpha3",
		Object:  func() client.Object { return new(kubevirt.VirtualMachine) },
		List:    func() client.ObjectList { return new(kubevirt.VirtualMachineList) },
		Cached:  true,
		CRD: kind.CRD{
			ShortNames: []string{"vm", "vms"},
			Columns: []kind.Column{
				kind.Age(),
				{Name: "Status", Type: "string", JSONPath: ".status.printableStatus", Description: "Human Readable Status"},
				kind.Condition("Ready", "Ready", 0),
			},
			Status: true,
		},
		Access: kind.Access{
			Object:     []string{"get", "list", "watch", "create", "patch", "delete"},
			Status:     []string{"patch"},
			Finalizers: []string{"update"},
		},
		Admission: rules(),
		Fields:    []kind.FieldList{{Name: "vms", Fields: Supported(), Check: kind.Checked(CheckManifest)}},
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
	nodes, err := control.ForConfig(m.GetConfig())
	if err != nil {
		return err
	}
	vmis, err := instances.New(in)
	if err != nil {
		return err
	}
	saves := &memory.Saves{Live: m.GetAPIReader(), Uncached: in.Uncached, Pods: vmis.Pods, Nodes: nodes, Holder: in.Holder}
	r := NewReconciler(Options{
		Client: m.GetClient(), Live: m.GetAPIReader(), Events: in.Events("virtualmachine-controller"),
		Config: in.Config, Now: in.Now, Revisions: in.Uncached, DataVolumes: dataVolumes, Snapshots: snapshots, Memory: saves,
	})
	return r.SetUp(ctx, m)
}
