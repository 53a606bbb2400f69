package controller_test

import (
	"fmt"
	"strings"
	"testing"

	autoscalingv1 "k8s.io/api/autoscaling/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	kubevirt "kubevirt.io/api/core/v1"
	poolapi "kubevirt.io/api/pool/v1beta1"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// pool makes one whose VMs and instances have the label pool=NAME.
func (w *world) pool(name string, replicas int32) *poolapi.VirtualMachinePool {
	w.Helper()
	labels := map[string]string{"pool": name}
	pool := &poolapi.VirtualMachinePool{
		ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: namespace},
		Spec: poolapi.VirtualMachinePoolSpec{
			Replicas: &replicas,
			Selector: &metav1.LabelSelector{MatchLabels: labels},
			ScaleInStrategy: &poolapi.VirtualMachinePoolScaleInStrategy{Proactive: &poolapi.VirtualMachinePoolProactiveScaleInStrategy{
				SelectionPolicy: &poolapi.VirtualMachinePoolSelectionPolicy{SortPolicy: new(poolapi.VirtualMachinePoolSortPolicyDescendingOrder)},
			}},
			VirtualMachineTemplate: &poolapi.VirtualMachineTemplateSpec{
				ObjectMeta: metav1.ObjectMeta{Labels: labels},
				Spec: kubevirt.VirtualMachineSpec{
					RunStrategy: new(kubevirt.RunStrategyAlways),
					Template: &kubevirt.VirtualMachineInstanceTemplateSpec{
						ObjectMeta: metav1.ObjectMeta{Labels: labels}, Spec: newVMI(name).Spec,
					},
				},
			},
		},
	}
	if err := w.Create(w.Context(), pool); err != nil {
		w.Fatal(err)
	}
	return pool
}

// counts waits until a pool reports so many replicas.
func (w *world) counts(pool *poolapi.VirtualMachinePool, replicas, ready int32) {
	w.Helper()
	until(w, pool, pool.Name, fmt.Sprintf("%d replicas, %d ready", replicas, ready), func(p *poolapi.VirtualMachinePool) bool {
		return p.Status.Replicas == replicas && p.Status.ReadyReplicas == ready
	})
}

// TestPool: a pool is scaled as an autoscaler does it, updated, and replaces a VM that
// is gone. The API server serves it in both versions.
func TestPool(t *testing.T) {
	w := newWorld(t)
	w.node("pool")
	pool := w.pool("pool", 0)
	w.counts(pool, 0, 0)
	scale := &autoscalingv1.Scale{Spec: autoscalingv1.ScaleSpec{Replicas: 2}}
	if err := w.SubResource("scale").Update(t.Context(), pool, client.WithSubResourceBody(scale)); err != nil {
		t.Fatal(err)
	}
	first := w.instanceOf("pool-0", nil)
	p := w.run(first, "pool")
	w.run(w.instanceOf("pool-1", nil), "pool")
	w.counts(pool, 2, 2)
	w.event("pool", "SuccessfulCreate", "Created VM default/pool-0")
	if err := w.SubResource("scale").Get(t.Context(), pool, scale); err != nil || scale.Status.Selector != "pool=pool" {
		t.Errorf("an autoscaler reads %+v, %v", scale.Status, err)
	}
	older := new(unstructured.Unstructured)
	older.SetAPIVersion("pool.kubevirt.io/v1alpha1")
	older.SetKind("VirtualMachinePool")
	if err := w.Get(t.Context(), client.ObjectKeyFromObject(pool), older); err != nil {
		t.Error(err)
	}

	w.change(pool, false, func() { pool.Spec.VirtualMachineTemplate.Spec.Template.Spec.Hostname = "other" })
	until(w, p, p.Name, "the pod's deletion", deleted)
	w.exited(p, 0)
	second := w.instanceOf("pool-0", first)
	if second.Spec.Hostname != "other" {
		t.Errorf("host name %q", second.Spec.Hostname)
	}
	vm := until(w, new(kubevirt.VirtualMachine), "pool-0", "the VM", func(*kubevirt.VirtualMachine) bool { return true })
	if !metav1.IsControlledBy(vm, pool) || !strings.HasPrefix(vm.Labels[kubevirt.VirtualMachinePoolRevisionName], "pool-") {
		t.Errorf("%+v", vm.ObjectMeta)
	}

	if err := w.Delete(t.Context(), vm); err != nil {
		t.Fatal(err)
	}
	until(w, new(kubevirt.VirtualMachine), "pool-0", "a successor", func(next *kubevirt.VirtualMachine) bool { return next.UID != vm.UID })
	scale = &autoscalingv1.Scale{Spec: autoscalingv1.ScaleSpec{Replicas: 1}}
	if err := w.SubResource("scale").Update(t.Context(), pool, client.WithSubResourceBody(scale)); err != nil {
		t.Fatal(err)
	}
	w.counts(pool, 1, 0)
	w.event("pool", "SuccessfulDelete", "Deleted VM default/pool-1")
}
