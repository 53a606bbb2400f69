package vmi

import (
	"maps"
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	kubevirt "kubevirt.io/api/core/v1"
)

// TestNodeLabels: pods require the labels that nodes have, and none in a cluster without them.
func TestNodeLabels(t *testing.T) {
	nehalem := func(vmi *kubevirt.VirtualMachineInstance) { vmi.Spec.Domain.CPU = &kubevirt.CPU{Model: "Nehalem"} }
	g := newRig(t)
	g.add(nehalem)
	g.reconcile()
	if p := g.onePod(); len(p.Spec.NodeSelector) > 0 {
		t.Errorf("without labels: %v", p.Spec.NodeSelector)
	}

	g = newRig(t)
	g.Add(t, &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "plain"}})
	g.Add(t, &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "labelled", Labels: map[string]string{
		"kubevirt.io/schedulable": "true", "cpu-model.node.kubevirt.io/EPYC": "true",
	}}})
	g.add(nehalem)
	g.reconcile()
	want := map[string]string{"kubevirt.io/schedulable": "true", "cpu-model.node.kubevirt.io/Nehalem": "true"}
	if got := g.onePod().Spec.NodeSelector; !maps.Equal(got, want) {
		t.Errorf("%v, want %v", got, want)
	}
}

// TestTargetOfHostModel: the target of a migration has the CPU of the guest's node.
func TestTargetOfHostModel(t *testing.T) {
	g := newRig(t)
	g.Add(t, &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "node1", Labels: map[string]string{
		"host-model-cpu.node.kubevirt.io/EPYC": "true", "cpu-model-migration.node.kubevirt.io/EPYC": "true",
	}}})
	vmi := g.add(func(vmi *kubevirt.VirtualMachineInstance) {
		vmi.Spec.Domain.CPU = &kubevirt.CPU{Model: kubevirt.CPUModeHostModel}
	})
	vmi.Status.NodeName = "node1"
	p, err := g.r.Pods.Manifest(t.Context(), vmi)
	if err != nil {
		t.Fatal(err)
	}
	if got := slices.Collect(maps.Keys(p.Spec.NodeSelector)); !slices.Equal(got, []string{"cpu-model-migration.node.kubevirt.io/EPYC"}) {
		t.Errorf("%v", got)
	}
}
