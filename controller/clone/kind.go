package clone

import (
	"context"

	api "kubevirt.io/api/clone/v1beta1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/nodevirt/nodevirt/controller/kind"
)

// Kind describes VirtualMachineClones.
func Kind() kind.Kind {
	return kind.Kind{
		Version: api.SchemeGroupVersion,
		Older:   "v1alpha1",
		Object:  func() client.Object { return new(vmClone) },
		List:    func() client.ObjectList { return new(vmCloneList) },
		Cached:  true,
		CRD: kind.CRD{
			ShortNames: []string{"vmclone", "vmclones"},
			Columns: []kind.Column{
				{Name: "Phase", Type: "string", JSONPath: ".status.phase"},
				{Name: "SourceVirtualMachine", Type: "string", JSONPath: ".spec.source.name"},
				{Name: "TargetVirtualMachine", Type: "string", JSONPath: ".spec.target.name"},
			},
			Status: true,
		},
		Access: kind.Access{
			Object:     []string{"get", "list", "watch", "delete"},
			Status:     []string{"patch"},
			Finalizers: []string{"update"},
		},
		Admission: rules(),
		Fields:    []kind.FieldList{{Name: "clones", Fields: Supported(), Check: kind.Checked(CheckManifest)}},
		SetUp:     setUp,
	}
}

func setUp(ctx context.Context, in kind.Cluster) error {
	m := in.Manager
	r := &Reconciler{
		Client: m.GetClient(), Live: m.GetAPIReader(), Events: in.Events("clone-controller"), Now: in.Now,
	}
	return r.SetUp(ctx, m)
}
