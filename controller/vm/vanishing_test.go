package vm

import (
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	kubevirt "kubevirt.io/api/core/v1"

	"github.com/nodevirt/nodevirt/test/fakecluster"
)

// TestDiskDeletedUnderAVM: a running VM says that its disk has been deleted, and how to keep the content, once.
func TestDiskDeletedUnderAVM(t *testing.T) {
	g := newRig(t)
	g.r.dataVolumes = fakeDataVolumes(nil)
	pvc := &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{
		Namespace: web.Namespace, Name: "data", Finalizers: []string{"kubernetes.io/pvc-protection"},
	}}
	pvc.Spec.VolumeName = "pv-1"
	g.Add(t, pvc)
	g.add(kubevirt.RunStrategyAlways, func(vm *kubevirt.VirtualMachine) {
		vm.Spec.Template.Spec.Volumes = []kubevirt.Volume{fakecluster.ClaimVolume("data", "data")}
	})
	deleted := func() *cond {
		all := g.vm().Status.Conditions
		if i := slices.IndexFunc(all, func(c cond) bool { return c.Type == conditionDisksDeleted }); i >= 0 {
			return &all[i]
		}
		return nil
	}
	g.reconcile()
	g.reconcile()
	if c := deleted(); c != nil {
		t.Errorf("before the deletion: %+v", c)
	}
	if err := g.Delete(t.Context(), pvc); err != nil {
		t.Fatal(err)
	}
	g.reconcile()
	c := deleted()
	if c == nil || !strings.Contains(c.Message, "PVC data (PersistentVolume pv-1)") || !strings.Contains(c.Message, "Retain") {
		t.Fatalf("condition %+v", c)
	}
	g.reconcile()
	if n := strings.Count(g.Events(), reasonDiskDeleted); n != 1 {
		t.Errorf("%d events", n)
	}
}
