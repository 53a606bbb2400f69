package pod_test

import (
	"slices"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	kubevirt "kubevirt.io/api/core/v1"

	"github.com/nodevirt/nodevirt/controller/pod"
)

// TestNewestState: the newest PVC has the state that has moved from another one, which is left.
func TestNewestState(t *testing.T) {
	vm := &kubevirt.VirtualMachine{ObjectMeta: metav1.ObjectMeta{Name: "web", UID: "one"}}
	at := time.Now()
	var all []corev1.PersistentVolumeClaim
	for i, name := range []string{"first", "moved", "removed", "others"} {
		owner := *metav1.NewControllerRef(vm, kubevirt.VirtualMachineGroupVersionKind)
		c := corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{
			Name: name, Labels: map[string]string{pod.StateLabel: "web"}, OwnerReferences: []metav1.OwnerReference{owner},
			CreationTimestamp: metav1.NewTime(at.Add(time.Duration(i) * time.Second)),
		}}
		switch name {
		case "removed":
			c.DeletionTimestamp = new(metav1.Now())
		case "others":
			c.OwnerReferences[0].UID = "two"
		}
		all = append(all, c)
	}
	for range 2 {
		if found := pod.FindVMState(vm, all); found == nil || found.Name != "moved" {
			t.Errorf("%+v", found)
		}
		slices.Reverse(all)
	}
}
