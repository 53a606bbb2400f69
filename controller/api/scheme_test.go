package api_test

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
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
