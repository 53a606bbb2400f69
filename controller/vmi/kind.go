package vmi

import (
	"context"

	kubevirt "kubevirt.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/nodevirt/nodevirt/controller/control"
	"github.com/nodevirt/nodevirt/controller/datavolume"
	"github.com/nodevirt/nodevirt/controller/hotplug"
	"github.com/nodevirt/nodevirt/controller/kind"
	"github.com/nodevirt/nodevirt/controller/manifest"
	"github.com/nodevirt/nodevirt/controller/pod"
)

// eventSource is what reports the events of instances, as in KubeVirt.
const eventSource = "virtualmachine-controller"

// Kind describes VirtualMachineInstances.
func Kind() kind.Kind {
	return kind.Kind{
		Version: kubevirt.SchemeGroupVersion,
		Older:   "v1alpha3",
		Object:  func() client.Object { return new(kubevirt.VirtualMachineInstance) },
		List:    func() client.ObjectList { return new(kubevirt.VirtualMachineInstanceList) },
		Cached:  true,
		CRD: kind.CRD{
			ShortNames: []string{"vmi", "vmis"},
			Columns: []kind.Column{
				kind.Age(),
				{Name: "Phase", Type: "string", JSONPath: ".status.phase"},
				{Name: "IP", Type: "string", JSONPath: ".status.interfaces[0].ipAddress"},
				{Name: "NodeName", Type: "string", JSONPath: ".status.nodeName"},
				kind.Condition("Ready", "Ready", 0),
				kind.Condition("Live-Migratable", "LiveMigratable", 1),
				kind.Condition("Paused", "Paused", 1),
			},
			Status: true,
		},
		Access: kind.Access{
			Object:     []string{"get", "list", "watch", "create", "patch", "delete"},
			Status:     []string{"patch"},
			Finalizers: []string{"update"},
		},
		Admission: rules(),
		// Nodes read most of the fields: shim/vmspec has those.
		Fields: []kind.FieldList{{Name: "pods", Fields: manifest.PodFields(), Check: kind.Checked(manifest.CheckVMI)}},
		SetUp:  setUp,
	}
}

func setUp(ctx context.Context, in kind.Cluster) error {
	r, err := New(in)
	if err != nil {
		return err
	}
	if err := r.SetUp(ctx, in.Manager); err != nil {
		return err
	}
	nodes, err := control.ForConfig(in.Manager.GetConfig())
	if err != nil {
		return err
	}
	h := &hotplug.Reconciler{
		Client: in.Manager.GetClient(), Events: in.Events(eventSource), Guests: r.Guests, Nodes: nodes, Holder: in.Holder, Now: in.Now,
	}
	return h.SetUp(ctx, in.Manager)
}

// New returns a reconciler of a cluster. It runs only after SetUp.
func New(in kind.Cluster) (*Reconciler, error) {
	m := in.Manager
	dataVolumes, err := datavolume.New(m.GetConfig())
	if err != nil {
		return nil, err
	}
	nodes, err := control.ForConfig(m.GetConfig())
	if err != nil {
		return nil, err
	}
	return NewReconciler(Options{
		Client: m.GetClient(), Live: m.GetAPIReader(), Events: in.Events(eventSource),
		DataVolumes:  dataVolumes,
		NetworkDisks: in.NetworkDisks,
		Config:       in.Config, Holder: in.Holder,
		Pods: pod.Options{RuntimeClass: in.RuntimeClass, StubImage: in.StubImage}, Tracing: in.Tracing, Nodes: nodes, Now: in.Now,
	}), nil
}
