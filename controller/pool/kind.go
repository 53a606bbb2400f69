package pool

import (
	"context"

	api "kubevirt.io/api/pool/v1beta1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/nodevirt/nodevirt/controller/datavolume"
	"github.com/nodevirt/nodevirt/controller/kind"
)

// Kind describes VirtualMachinePools.
func Kind() kind.Kind {
	return kind.Kind{
		Version: api.SchemeGroupVersion,
		Older:   "v1alpha1",
		Object:  func() client.Object { return new(api.VirtualMachinePool) },
		List:    func() client.ObjectList { return new(api.VirtualMachinePoolList) },
		Cached:  true,
		CRD:     kind.Replicas("VirtualMachines", "vmpool", "vmpools"),
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
	r := NewReconciler(Options{
		Client: m.GetClient(), Live: m.GetAPIReader(), Revisions: in.Uncached, DataVolumes: dataVolumes,
		Events: in.Events("virtualmachinepool-controller"), Now: in.Now,
	})
	return r.SetUp(ctx, m)
}
