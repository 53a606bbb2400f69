package vm

import (
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	kubevirt "kubevirt.io/api/core/v1"

	"github.com/nodevirt/nodevirt/controller/config"
	"github.com/nodevirt/nodevirt/test/fakecluster"
)

// configure has the KubeVirt object say something.
func (g *rig) configure(change func(*kubevirt.KubeVirtConfiguration)) {
	g.t.Helper()
	object := &kubevirt.KubeVirt{ObjectMeta: metav1.ObjectMeta{Namespace: "nodevirt", Name: config.Name}}
	if g.Exists(g.t, object) {
		fakecluster.Change(g.t, g.Cluster, object, func(k *kubevirt.KubeVirt) { change(&k.Spec.Configuration) })
		return
	}
	change(&object.Spec.Configuration)
	g.Add(g.t, object)
	g.r.config = config.Source{Namespace: "nodevirt", Reader: g.Cached()}
}

func (g *rig) refer(policy kubevirt.InstancetypeReferencePolicy) {
	g.t.Helper()
	g.configure(func(c *kubevirt.KubeVirtConfiguration) {
		c.Instancetype = &kubevirt.InstancetypeConfiguration{ReferencePolicy: &policy}
	})
}

// expanded checks that the VM has the type's size, and no reference to the type.
func (g *rig) expanded() {
	g.t.Helper()
	vm := g.vm()
	d := vm.Spec.Template.Spec.Domain
	if vm.Spec.Instancetype != nil || vm.Status.InstancetypeRef != nil || d.CPU == nil || d.CPU.Sockets*d.CPU.Cores*d.CPU.Threads != 4 ||
		d.Memory == nil || d.Memory.Guest.Cmp(resource.MustParse("1Gi")) != 0 {
		g.t.Errorf("not expanded: %+v, CPU %+v, memory %+v, status %+v", vm.Spec.Instancetype, d.CPU, d.Memory, vm.Status.InstancetypeRef)
	}
	if revisions := new(appsv1.ControllerRevisionList); g.List(g.t.Context(), revisions) == nil {
		for _, r := range revisions.Items {
			if r.Labels["instancetype.kubevirt.io/object-name"] != "" {
				g.t.Errorf("revision %s is still there", r.Name)
			}
		}
	}
}

// TestExpand: with the policy expand a new VM has no revision of its type.
func TestExpand(t *testing.T) {
	g := newRig(t)
	g.refer(kubevirt.Expand)
	g.Add(t, large())
	g.add(always, typed)
	g.reconcile()
	g.reconcile()
	g.expanded()
	if cpu := g.vmi().Spec.Domain.CPU; cpu == nil || cpu.Sockets*cpu.Cores*cpu.Threads != 4 {
		t.Errorf("the instance's CPU: %+v", cpu)
	}
}

// TestExpandAll: expand leaves a VM with a revision alone, and expandAll does not. The instance that runs is as the VM
// says before and after.
func TestExpandAll(t *testing.T) {
	g := newRig(t)
	g.Add(t, large())
	g.add(always, typed)
	g.reconcile()
	g.refer(kubevirt.Expand)
	g.reconcile()
	if vm := g.vm(); vm.Spec.Instancetype == nil || vm.Status.InstancetypeRef == nil {
		t.Fatalf("expanded with a revision: %+v", vm.Spec)
	}
	g.refer(kubevirt.ExpandAll)
	g.reconcile()
	g.reconcile()
	g.expanded()
	for _, c := range g.vm().Status.Conditions {
		if c.Type == kubevirt.VirtualMachineRestartRequired {
			t.Errorf("condition %+v", c)
		}
	}
}

// TestExpandMissing: a VM whose type is missing waits for it, as with other policies.
func TestExpandMissing(t *testing.T) {
	g := newRig(t)
	g.refer(kubevirt.Expand)
	g.add(always, typed)
	g.reconcile()
	if c := g.failure(); c == nil || c.Reason != "FailedFindInstancetype" || g.vm().Spec.Instancetype == nil {
		t.Errorf("condition: %+v", c)
	}
}

// TestRoom: liveUpdateConfiguration gives new instances maximums that they do not say.
func TestRoom(t *testing.T) {
	quantity := func(s string) *resource.Quantity { return new(resource.MustParse(s)) }
	for name, tt := range map[string]struct {
		given   kubevirt.KubeVirtConfiguration
		change  func(*kubevirt.VirtualMachineInstanceSpec)
		sockets uint32
		memory  string
	}{
		"without a configuration": {},
		"KubeVirt's ratio":        {given: kubevirt.KubeVirtConfiguration{LiveUpdateConfiguration: &kubevirt.LiveUpdateConfiguration{}}, sockets: 4, memory: "2Gi"},
		"strategy":                {given: kubevirt.KubeVirtConfiguration{VMRolloutStrategy: new(kubevirt.VMRolloutStrategyLiveUpdate)}, sockets: 4, memory: "2Gi"},
		"maximums": {
			given: kubevirt.KubeVirtConfiguration{LiveUpdateConfiguration: &kubevirt.LiveUpdateConfiguration{
				MaxCpuSockets: new(uint32(3)), MaxGuest: quantity("1Gi"), MaxHotplugRatio: 8,
			}},
			sockets: 3, memory: "1Gi",
		},
		"the instance's own": {
			given: kubevirt.KubeVirtConfiguration{LiveUpdateConfiguration: &kubevirt.LiveUpdateConfiguration{}},
			change: func(s *kubevirt.VirtualMachineInstanceSpec) {
				s.Domain.CPU = &kubevirt.CPU{MaxSockets: 2}
				s.Domain.Memory.MaxGuest = quantity("768Mi")
			},
			sockets: 2, memory: "768Mi",
		},
		"limits": {
			given: kubevirt.KubeVirtConfiguration{LiveUpdateConfiguration: &kubevirt.LiveUpdateConfiguration{}},
			change: func(s *kubevirt.VirtualMachineInstanceSpec) {
				s.Domain.Resources.Limits = map[corev1.ResourceName]resource.Quantity{corev1.ResourceCPU: resource.MustParse("1"), corev1.ResourceMemory: resource.MustParse("512Mi")}
			},
		},
		"staged": {given: kubevirt.KubeVirtConfiguration{
			LiveUpdateConfiguration: &kubevirt.LiveUpdateConfiguration{}, VMRolloutStrategy: new(kubevirt.VMRolloutStrategyStage),
		}},
	} {
		spec := new(kubevirt.VirtualMachineInstanceSpec)
		spec.Domain.Memory = &kubevirt.Memory{Guest: quantity("512Mi")}
		if tt.change != nil {
			tt.change(spec)
		}
		addRoom(config.Config{Given: tt.given}, spec)
		sockets, memory := uint32(0), ""
		if spec.Domain.CPU != nil {
			sockets = spec.Domain.CPU.MaxSockets
		}
		if m := spec.Domain.Memory.MaxGuest; m != nil {
			memory = m.String()
		}
		if sockets != tt.sockets || memory != tt.memory {
			t.Errorf("%s: %d sockets and %q of memory at most; want %d and %q", name, sockets, memory, tt.sockets, tt.memory)
		}
	}
}
