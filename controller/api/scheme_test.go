package api_test

import (
	"testing"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	nodev1 "k8s.io/api/node/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	kubevirt "kubevirt.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/apiutil"

	"github.com/nodevirt/nodevirt/controller/api"
)

// TestOneVersion: a client that writes an object must find one version of it.
func TestOneVersion(t *testing.T) {
	scheme, err := api.NewScheme()
	if err != nil {
		t.Fatal(err)
	}
	for want, object := range map[string]client.Object{
		"/v1, Kind=Pod":                                         &corev1.Pod{},
		"kubevirt.io/v1, Kind=VirtualMachine":                   &kubevirt.VirtualMachine{},
		"kubevirt.io/v1, Kind=VirtualMachineInstance":           &kubevirt.VirtualMachineInstance{},
		"kubevirt.io/v1, Kind=VirtualMachineInstanceReplicaSet": &kubevirt.VirtualMachineInstanceReplicaSet{},
	} {
		kind, err := apiutil.GVKForObject(object, scheme)
		if err != nil || kind.String() != want {
			t.Errorf("%v, %v; want %s", kind, err, want)
		}
	}
}

func TestMapper(t *testing.T) {
	scheme, err := api.NewScheme()
	if err != nil {
		t.Fatal(err)
	}
	mapper := api.NewMapper(scheme)
	for want, object := range map[string]client.Object{
		"/v1, Resource=pods namespace":                       &corev1.Pod{},
		"/v1, Resource=nodes root":                           &corev1.Node{},
		"kubevirt.io/v1, Resource=virtualmachines namespace": &kubevirt.VirtualMachine{},
		"node.k8s.io/v1, Resource=runtimeclasses root":       &nodev1.RuntimeClass{},
		"storage.k8s.io/v1, Resource=storageclasses root":    &storagev1.StorageClass{},
		"coordination.k8s.io/v1, Resource=leases namespace":  &coordinationv1.Lease{},
	} {
		kind, err := apiutil.GVKForObject(object, scheme)
		if err != nil {
			t.Fatal(err)
		}
		m, err := mapper.RESTMapping(kind.GroupKind(), kind.Version)
		if err != nil || m.Resource.String()+" "+string(m.Scope.Name()) != want {
			t.Errorf("%v, %v; want %s", m, err, want)
		}
	}
}

// TestMapperOfForeignKinds: the API server has these kinds only in clusters with CDI, and with Multus.
func TestMapperOfForeignKinds(t *testing.T) {
	scheme, err := api.NewScheme()
	if err != nil {
		t.Fatal(err)
	}
	mapper := api.NewMapper(scheme)
	for kind, want := range map[string]string{
		"DataSource.v1beta1.cdi.kubevirt.io":             "cdi.kubevirt.io/v1beta1, Resource=datasources namespace",
		"DataVolume.v1beta1.cdi.kubevirt.io":             "cdi.kubevirt.io/v1beta1, Resource=datavolumes namespace",
		"NetworkAttachmentDefinition.v1.k8s.cni.cncf.io": "k8s.cni.cncf.io/v1, Resource=network-attachment-definitions namespace",
	} {
		full, _ := schema.ParseKindArg(kind)
		m, err := mapper.RESTMapping(full.GroupKind(), full.Version)
		if err != nil || m.Resource.String()+" "+string(m.Scope.Name()) != want {
			t.Errorf("%v, %v; want %s", m, err, want)
		}
	}
}
