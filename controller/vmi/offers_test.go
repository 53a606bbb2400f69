package vmi

import (
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	kubevirt "kubevirt.io/api/core/v1"

	"github.com/nodevirt/nodevirt/test/fakecluster"
)

// addOffer adds a node with labels.
func (g *rig) addOffer(name string, labels ...string) {
	g.t.Helper()
	n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{kubevirt.NodeSchedulable: "true"}}}
	for _, key := range labels {
		n.Labels[key] = "true"
	}
	g.Add(g.t, n)
}

// TestUnmet: an instance that no node can run names the field, and what nodes have.
func TestUnmet(t *testing.T) {
	const machine, model, feature = kubevirt.SupportedMachineTypeLabel, kubevirt.CPUModelLabel, kubevirt.CPUFeatureLabel
	for name, row := range map[string]struct {
		change func(*kubevirt.VirtualMachineInstance)
		want   string
	}{
		"machine type of another distribution": {func(vmi *kubevirt.VirtualMachineInstance) {
			vmi.Spec.Domain.Machine = &kubevirt.Machine{Type: "pc-q35-rhel9.2.0"}
		}, "No node has the machine type pc-q35-rhel9.2.0 of spec.domain.machine.type. Nodes have pc-q35-7.2, q35. 0/2 nodes"},
		"CPU model with a typo": {func(vmi *kubevirt.VirtualMachineInstance) {
			vmi.Spec.Domain.CPU = &kubevirt.CPU{Model: "haswel"}
		}, "No node has the CPU model haswel of spec.domain.cpu.model. Nodes have Haswell, EPYC. 0/2 nodes"},
		"CPU feature": {func(vmi *kubevirt.VirtualMachineInstance) {
			vmi.Spec.Domain.CPU = &kubevirt.CPU{Features: []kubevirt.CPUFeature{{Name: "amx", Policy: "require"}}}
		}, "No node has the CPU feature amx of spec.domain.cpu.features. Nodes have avx2. 0/2 nodes"},
		"model and feature of two nodes": {func(vmi *kubevirt.VirtualMachineInstance) {
			vmi.Spec.Domain.CPU = &kubevirt.CPU{Model: "EPYC", Features: []kubevirt.CPUFeature{{Name: "avx2", Policy: "require"}}}
		}, "No node has all of: CPU feature avx2 (spec.domain.cpu.features), CPU model EPYC (spec.domain.cpu.model), machine type q35 (spec.domain.machine.type). 0/2"},
		"another reason": {func(*kubevirt.VirtualMachineInstance) {}, "0/2 nodes are available"},
	} {
		t.Run(name, func(t *testing.T) {
			g := newRig(t)
			g.addOffer("a", machine+"q35", machine+"pc-q35-7.2", model+"Haswell", feature+"avx2")
			g.addOffer("b", machine+"q35", model+"EPYC")
			g.add(row.change)
			g.reconcile()
			fakecluster.Change(t, g.Cluster, g.onePod(), func(p *corev1.Pod) {
				p.Status.Conditions = []corev1.PodCondition{{
					Type: corev1.PodScheduled, Status: corev1.ConditionFalse, Reason: corev1.PodReasonUnschedulable, Message: "0/2 nodes are available",
				}}
			})
			result := g.reconcile()
			c := find(g.vmi().Status.Conditions, podScheduled)
			if c == nil || c.Status != corev1.ConditionFalse || !strings.HasPrefix(c.Message, row.want) {
				t.Errorf("%+v; want %s", c, row.want)
			}
			if names := !strings.HasPrefix(row.want, "0/2"); names != (result.RequeueAfter == offersAge) {
				t.Errorf("asked again after %s", result.RequeueAfter)
			}
		})
	}
}

// TestUnmetLater: a node that gets what an instance asks for is noticed.
func TestUnmetLater(t *testing.T) {
	g := newRig(t)
	g.addOffer("a", kubevirt.SupportedMachineTypeLabel+"q35")
	g.add(func(vmi *kubevirt.VirtualMachineInstance) { vmi.Spec.Domain.Machine = &kubevirt.Machine{Type: "pc"} })
	g.reconcile()
	fakecluster.Change(t, g.Cluster, g.onePod(), func(p *corev1.Pod) {
		p.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodScheduled, Status: corev1.ConditionFalse, Message: "0/2 nodes"}}
	})
	message := func() string {
		g.reconcile()
		return find(g.vmi().Status.Conditions, podScheduled).Message
	}
	if got := message(); !strings.HasPrefix(got, "No node has the machine type pc") {
		t.Error(got)
	}
	g.addOffer("b", kubevirt.SupportedMachineTypeLabel+"pc")
	g.now = g.now.Add(offersAge + time.Second)
	if got := message(); got != "0/2 nodes" {
		t.Error(got)
	}
}
