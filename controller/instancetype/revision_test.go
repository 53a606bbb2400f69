package instancetype_test

import (
	"fmt"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	kubevirt "kubevirt.io/api/core/v1"

	"github.com/nodevirt/nodevirt/controller/instancetype"
	"github.com/nodevirt/nodevirt/internal/bounds"
	"github.com/nodevirt/nodevirt/test/fakecluster"
)

// TestRevisionIsBounded: the data of a ControllerRevision that a VM's author names has no more elements of lists than a reviewed
// object.
func TestRevisionIsBounded(t *testing.T) {
	c := fakecluster.New(t, fakecluster.Options{Types: []func(*runtime.Scheme) error{appsv1.AddToScheme, kubevirt.AddToScheme}})
	vm := &kubevirt.VirtualMachine{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "web"}}
	vm.Spec.Instancetype = &kubevirt.InstancetypeMatcher{Name: "small", Kind: "VirtualMachineInstancetype", RevisionName: "large"}
	text := fmt.Sprintf(`{"apiVersion": "instancetype.kubevirt.io/v1beta1", "kind": "VirtualMachineInstancetype", "spec": {"gpus": [{}%s]}}`,
		strings.Repeat(",{}", bounds.Elements))
	c.Add(t, &appsv1.ControllerRevision{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "large"}, Data: runtime.RawExtension{Raw: []byte(text)},
	})
	if _, err := instancetype.Find(t.Context(), c.Client, vm); err == nil || !strings.Contains(err.Error(), "8193 elements together") {
		t.Errorf("%v", err)
	}
}
