package vmi

import (
	"context"
	"slices"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	kubevirt "kubevirt.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/nodevirt/nodevirt/controller/pod"
)

// TestNodeLabels: pods require the labels that nodes have, and none in a cluster without them.
func TestNodeLabels(t *testing.T) {
	nehalem := func(vmi *kubevirt.VirtualMachineInstance) { vmi.Spec.Domain.CPU = &kubevirt.CPU{Model: "Nehalem"} }
	g := newRig(t)
	g.add(nehalem)
	g.reconcile()
	if got := requiredLabels(g.onePod()); len(got) > 0 {
		t.Errorf("without labels: %v", got)
	}

	g = newRig(t)
	g.Add(t, &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "plain"}})
	g.Add(t, &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "labelled", Labels: map[string]string{
		"machine-type.node.kubevirt.io/q35": "true", "cpu-model.node.kubevirt.io/EPYC": "true", // it cannot start VMs now
	}}})
	g.add(nehalem)
	g.reconcile()
	want := []string{"cpu-model.node.kubevirt.io/Nehalem", "kubevirt.io/schedulable", "machine-type.node.kubevirt.io/q35"}
	if got := requiredLabels(g.onePod()); !slices.Equal(got, want) {
		t.Errorf("%v, want %v", got, want)
	}
}

// requiredLabels returns the labels that nodes write and a pod requires.
func requiredLabels(p *corev1.Pod) []string {
	var keys []string
	for _, c := range p.Spec.TopologySpreadConstraints {
		keys = append(keys, c.TopologyKey)
	}
	return keys
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
	p, err := g.r.Pods.Manifest(t.Context(), vmi, "")
	if err != nil {
		t.Fatal(err)
	}
	if got := requiredLabels(p); !slices.Equal(got, []string{"cpu-model-migration.node.kubevirt.io/EPYC"}) {
		t.Errorf("%v", got)
	}
}

// listing counts lists of nodes.
type listing struct {
	client.Client
	nodes int
}

func (l *listing) List(ctx context.Context, list client.ObjectList, how ...client.ListOption) error {
	if _, is := list.(*corev1.NodeList); is {
		l.nodes++
	}
	return l.Client.List(ctx, list, how...)
}

// TestLabelKindsKept: pods that are created within a moment look once for the labels that nodes
// have, so that the time per VM does not grow with the nodes; later pods look again.
func TestLabelKindsKept(t *testing.T) {
	g := newRig(t)
	nodes := &listing{Client: g.Cached()}
	cluster := &surroundings{client: nodes, live: g.Client, now: func() time.Time { return g.now }}
	kinds := func() []string {
		s, err := cluster.read(t.Context(), &kubevirt.VirtualMachineInstance{})
		if err != nil {
			t.Fatal(err)
		}
		return s.LabelKinds
	}
	for range 3 {
		if got := kinds(); len(got) > 0 {
			t.Errorf("without nodes: %v", got)
		}
	}
	if want := len(pod.LabelKinds()); nodes.nodes != want {
		t.Errorf("%d lists of nodes, want %d", nodes.nodes, want)
	}
	g.Add(t, &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "node1", Labels: map[string]string{kubevirt.NodeSchedulable: "true"}}})
	g.now = g.now.Add(momentAge)
	if got := kinds(); !slices.Equal(got, []string{kubevirt.NodeSchedulable}) {
		t.Errorf("a moment later: %v", got)
	}
	g.now = g.now.Add(-time.Hour) // the clock was set back
	before := nodes.nodes
	if kinds(); nodes.nodes == before {
		t.Error("with a clock that was set back: no look")
	}
}
