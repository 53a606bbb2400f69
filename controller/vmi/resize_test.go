package vmi

import (
	"errors"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/runtime/schema"
	kubevirt "kubevirt.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/nodevirt/nodevirt/controller/pod"
	"github.com/nodevirt/nodevirt/test/fakecluster"
)

// resizable is the pod of a running instance of 1 vCPU and 256 MiB that can get 4 and 1 GiB.
func resizable(t *testing.T) (*rig, *corev1.Pod) {
	t.Helper()
	g := newRig(t)
	g.add(func(vmi *kubevirt.VirtualMachineInstance) {
		vmi.Spec.Domain.CPU = &kubevirt.CPU{Sockets: 1, MaxSockets: 4}
		vmi.Spec.Domain.Memory = &kubevirt.Memory{Guest: new(resource.MustParse("256Mi")), MaxGuest: new(resource.MustParse("1Gi"))}
	})
	g.reconcile()
	p := g.onePod()
	g.bind(p, "node1")
	g.state(p, running)
	g.reconcile()
	g.Writes()
	g.Events()
	return g, p
}

// wants changes the instance's spec, as the VirtualMachine's controller does.
func (g *rig) wants(sockets uint32, guest string) {
	g.t.Helper()
	fakecluster.Change(g.t, g.Cluster, g.vmi(), func(vmi *kubevirt.VirtualMachineInstance) {
		vmi.Spec.Domain.CPU.Sockets = sockets
		vmi.Spec.Domain.Memory.Guest = new(resource.MustParse(guest))
	})
}

// applies does the kubelet's work.
func (g *rig) applies(cpu, memory string) {
	g.t.Helper()
	fakecluster.Change(g.t, g.Cluster, g.onePod(), func(p *corev1.Pod) {
		p.Status.Conditions = nil
		p.Status.ContainerStatuses[0].Resources = &corev1.ResourceRequirements{Limits: corev1.ResourceList{
			corev1.ResourceCPU: resource.MustParse(cpu), corev1.ResourceMemory: resource.MustParse(memory),
		}}
	})
	g.reconcile()
}

func (g *rig) wantSize(sockets uint32, boot, current, requested string) {
	g.t.Helper()
	s := g.vmi().Status
	if m := s.Memory; s.CurrentCPUTopology.Sockets != sockets || m.GuestAtBoot.String() != boot || m.GuestCurrent.String() != current ||
		m.GuestRequested.String() != requested {
		g.t.Errorf("%d sockets, %s at boot, %s now, %s requested; want %d, %s, %s, %s", s.CurrentCPUTopology.Sockets, m.GuestAtBoot,
			m.GuestCurrent, m.GuestRequested, sockets, boot, current, requested)
	}
}

// wantChange checks a condition; empty for none.
func (g *rig) wantChange(kind kubevirt.VirtualMachineInstanceConditionType, status corev1.ConditionStatus, words string) {
	g.t.Helper()
	c := find(g.vmi().Status.Conditions, kind)
	switch {
	case c == nil && status == "":
	case c == nil || c.Status != status || !strings.Contains(c.Reason+": "+c.Message, words):
		g.t.Errorf("condition %s: %+v, want %s, %q", kind, c, status, words)
	}
}

const (
	vcpuChange   = kubevirt.VirtualMachineInstanceVCPUChange
	memoryChange = kubevirt.VirtualMachineInstanceMemoryChange
)

// TestResize: the pod is resized to the instance's spec, and the status follows the kubelet.
func TestResize(t *testing.T) {
	g, _ := resizable(t)
	g.wantSize(1, "256Mi", "256Mi", "256Mi")
	g.applies("1", "256Mi")
	g.wants(3, "512Mi")
	g.reconcile()
	if w := g.Writes(); !strings.Contains(w, "patch resize of Pod") {
		t.Fatalf("writes: %s", w)
	}
	c := g.onePod().Spec.Containers[0].Resources
	if c.Limits.Cpu().String() != "3" || c.Requests.Cpu().String() != "300m" || c.Limits.Memory().String() != "512Mi" || c.Requests.Memory().String() != "512Mi" {
		t.Errorf("resources: %v", c)
	}
	g.wantChange(vcpuChange, corev1.ConditionTrue, "")
	g.wantChange(memoryChange, corev1.ConditionTrue, "")
	g.wantSize(1, "256Mi", "256Mi", "512Mi")

	fakecluster.Change(t, g.Cluster, g.onePod(), func(p *corev1.Pod) {
		p.Status.Conditions = append(p.Status.Conditions, corev1.PodCondition{
			Type: corev1.PodResizePending, Status: corev1.ConditionTrue, Reason: corev1.PodReasonInfeasible, Message: "Node didn't have enough capacity: cpu",
		})
	})
	g.reconcile()
	g.wantChange(vcpuChange, corev1.ConditionFalse, "Infeasible: Node didn't have enough capacity: cpu")
	g.wantChange(memoryChange, corev1.ConditionFalse, "Infeasible")

	g.applies("3", "512Mi")
	g.wantChange(vcpuChange, "", "")
	g.wantChange(memoryChange, "", "")
	g.wantSize(3, "256Mi", "512Mi", "512Mi")
	g.Writes()
	g.reconcile()
	if w := g.Writes(); w != "" {
		t.Errorf("a second time: %s", w)
	}
	g.applies("2", "768Mi") // as an autoscaler has it: vCPUs stay
	g.wantSize(3, "256Mi", "768Mi", "512Mi")
}

// TestResizeRefused: the conditions say why the API server refuses, and the controller tries again.
func TestResizeRefused(t *testing.T) {
	g, _ := resizable(t)
	g.applies("1", "256Mi")
	g.wants(2, "256Mi")
	g.Fail = func(verb string, _ client.Object) error {
		if verb == "patch resize of" {
			return apierrors.NewForbidden(schema.GroupResource{Resource: "pods"}, "p", errors.New("exceeded quota: limits.cpu"))
		}
		return nil
	}
	if wait := g.reconcile().RequeueAfter; wait != resizeAgain {
		t.Errorf("again after %s", wait)
	}
	g.wantChange(vcpuChange, corev1.ConditionFalse, "FailedResize: resize pod")
	g.wantChange(vcpuChange, corev1.ConditionFalse, "exceeded quota")
	g.wantChange(memoryChange, "", "")
	g.Fail = nil
	g.reconcile()
	g.wantChange(vcpuChange, corev1.ConditionTrue, "")
	if _, changed := pod.Resize(g.onePod(), &g.vmi().Spec); changed {
		t.Error("the pod is still too small")
	}
}
