package pool

import (
	"context"

	api "kubevirt.io/api/pool/v1beta1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/nodevirt/nodevirt/controller/datavolume"
	"github.com/nodevirt/nodevirt/controller/kind"
	instances "github.com/nodevirt/nodevirt/controller/vmi"
)

// Kind describes VirtualMachinePools.
func Kind() kind.Kind {
	return kind.Kind{
		Version: api.SchemeGroupVersion,
		Older:   "v1alpha1",
		Object:  func() client.Object { return new(api.VirtualMachinePool) },
		List:    func() client.ObjectList { return new(api.VirtualMachinePoolList) },
		Cached:  true,
		CRD: kind.CRD{
			ShortNames: []string{"vmpool", "vmpools"},
			Columns: []kind.Column{
				{
					Name: "Desired", Type: "integer", JSONPath: ".spec.replicas",
					Description: "Number of desired VirtualMachines",
				},
				{
					Name: "Current", Type: "integer", JSONPath: ".status.replicas",
					Description: "Number of managed and not final or deleted VirtualMachines",
				},
				{
					Name: "Ready", Type: "integer", JSONPath: ".status.readyReplicas",
					Description: "Number of managed VirtualMachines which are ready to receive traffic",
				},
				kind.Age(),
			},
			Status: true,
			Scale:  &kind.Scale{Spec: ".spec.replicas", Status: ".status.replicas", Selector: ".status.labelSelector"},
		},
		Access: kind.Access{
			Object:     []string{"get", "list", "watch"},
			Status:     []string{"patch"},
			Finalizers: []string{"update"},
		},
		Admission: rules(),
		Fields:    []kind.FieldList{{Name: "pools", Fields: Supported(), Check: kind.Checked(CheckManifest)}},
		SetUp:     setUp,
	}
}

func setUp(ctx context.Context, in kind.Cluster) error {
	m := in.Manager
	dataVolumes, err := datavolume.New(m.GetConfig())
	if err != nil {
		return err
	}
	r := &Reconciler{
		Client: m.GetClient(), Live: m.GetAPIReader(), Revisions: in.Uncached, DataVolumes: dataVolumes,
		Events: m.GetEventRecorder("virtualmachinepool-controller"), Now: in.Now,
	}
	return r.SetUp(ctx, m, instances.Backoff())
}
