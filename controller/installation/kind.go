package installation

import (
	"context"

	kubevirt "kubevirt.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/nodevirt/nodevirt/controller/kind"
)

// Kind describes KubeVirts.
func Kind() kind.Kind {
	return kind.Kind{
		Version: kubevirt.SchemeGroupVersion,
		Older:   "v1alpha3",
		Object:  func() client.Object { return new(kubevirt.KubeVirt) },
		List:    func() client.ObjectList { return new(kubevirt.KubeVirtList) },
		Cached:  true,
		CRD: kind.CRD{
			ShortNames: []string{"kv", "kvs"},
			Columns: []kind.Column{
				kind.Age(),
				{Name: "Phase", Type: "string", JSONPath: ".status.phase"},
			},
			Status: true,
		},
		Access: kind.Access{
			Object: []string{"get", "list", "watch", "create", "patch"},
			Status: []string{"patch"},
		},
		Admission: rules(),
		SetUp:     setUp,
	}
}

func setUp(_ context.Context, in kind.Cluster) error {
	if in.Config.Namespace == "" { // a controller that runs elsewhere, without its API
		return nil
	}
	r := &Reconciler{Client: in.Manager.GetClient(), Key: in.Config.Key(), Version: in.Version, Now: in.Now}
	return r.SetUp(in.Manager)
}
