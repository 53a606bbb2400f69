package replicaset

import (
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	kubevirt "kubevirt.io/api/core/v1"

	"github.com/nodevirt/nodevirt/controller/replicas"
	"github.com/nodevirt/nodevirt/test/fakecluster"
)

// TestHuge: of as many instances as a replica set may request, a pass makes some.
func TestHuge(t *testing.T) {
	cluster := fakecluster.New(t, fakecluster.Options{Types: []func(*runtime.Scheme) error{kubevirt.AddToScheme}})
	set := &replicaSet{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "web"}}
	set.Spec.Template = new(kubevirt.VirtualMachineInstanceTemplateSpec)
	cluster.Add(t, set)
	r := &Reconciler{Client: cluster.Cached(), Live: cluster.Client, Events: cluster.Recorder}
	made, err := r.create(t.Context(), set, nil, 1<<31-1)
	if err != nil || made != replicas.Most {
		t.Errorf("%d instances were made: %v", made, err)
	}
}
