package replicaset

import (
	"context"

	kubevirt "kubevirt.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/nodevirt/nodevirt/controller/kind"
)

// Kind describes VirtualMachineInstanceReplicaSets.
func Kind() kind.Kind {
	return kind.Kind{
		Version: kubevirt.SchemeGroupVersion,
		Older:   "v1alpha3",
		Object:  func() client.Object { return new(kubevirt.VirtualMachineInstanceReplicaSet) },
		List:    func() client.ObjectList { return new(kubevirt.VirtualMachineInstanceReplicaSetList) },
		Cached:  true,
		CRD:     kind.Replicas("VirtualMachineInstances", "vmirs", "vmirss"),
		Access: kind.Access{
			Object:     []string{"get", "list", "watch"},
			Status:     []string{"patch"},
			Finalizers: []string{"update"},
		},
		Admission: rules(),
		Fields:    []kind.FieldList{{Name: "sets", Fields: Supported(), Check: kind.Checked(CheckManifest)}},
		SetUp:     setUp,
	}
}

func setUp(ctx context.Context, in kind.Cluster) error {
	m := in.Manager
	r := &Reconciler{
		Client: m.GetClient(), Live: m.GetAPIReader(), Events: in.Events("virtualmachinereplicaset-controller"),
		Now: in.Now,
	}
	return r.SetUp(ctx, m)
}
