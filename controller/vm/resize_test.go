package vm

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/types"
	kubevirt "kubevirt.io/api/core/v1"
	typesapi "kubevirt.io/api/instancetype/v1beta1"

	"github.com/nodevirt/nodevirt/test/fakecluster"
)

// resizable is a running instance of 1 socket and 64 MiB that can get 3 and 256 MiB.
func resizable(t *testing.T) *rig {
	t.Helper()
	g := newRig(t)
	g.add(always, func(vm *kubevirt.VirtualMachine) {
		d := &vm.Spec.Template.Spec.Domain
		d.CPU = &kubevirt.CPU{Sockets: 1, MaxSockets: 3}
		d.Memory.MaxGuest = new(resource.MustParse("256Mi"))
		d.Resources.Requests = corev1.ResourceList{corev1.ResourceMemory: resource.MustParse("32Mi")}
	})
	g.reconcile()
	g.phase(kubevirt.Running)
	g.reconcile()
	g.Writes()
	g.Events()
	return g
}

func (g *rig) domain(change func(d *kubevirt.DomainSpec)) {
	g.t.Helper()
	g.template(func(s *kubevirt.VirtualMachineInstanceSpec) { change(&s.Domain) })
	g.reconcile()
	g.reconcile()
}

func (g *rig) wantSize(sockets uint32, guest, request string, restart bool) {
	g.t.Helper()
	d := g.vmi().Spec.Domain
	if d.CPU.Sockets != sockets || d.Memory.Guest.String() != guest || d.Resources.Requests.Memory().String() != request {
		g.t.Errorf("the instance has %d sockets, %s, requests %s; want %d, %s, %s", d.CPU.Sockets, d.Memory.Guest, d.Resources.Requests.Memory(),
			sockets, guest, request)
	}
	if required := g.restartRequired(); required != restart {
		g.t.Errorf("RestartRequired is %t", required)
	}
}

// TestResize: the running instance gets what the template has more, up to its maximums. All else
// waits for a restart.
func TestResize(t *testing.T) {
	sockets := func(n uint32) func(*kubevirt.DomainSpec) {
		return func(d *kubevirt.DomainSpec) { d.CPU.Sockets = n }
	}
	guest := func(size string) func(*kubevirt.DomainSpec) {
		return func(d *kubevirt.DomainSpec) { d.Memory.Guest = new(resource.MustParse(size)) }
	}
	g := resizable(t)
	g.wantSize(1, "64Mi", "32Mi", false)
	g.domain(sockets(2))
	g.wantSize(2, "64Mi", "32Mi", false)
	g.domain(guest("192Mi"))
	g.wantSize(2, "192Mi", "160Mi", false)
	g.Writes()
	g.reconcile()
	g.expect("")
	g.domain(sockets(1))
	g.wantSize(2, "192Mi", "160Mi", true)
	g.domain(sockets(4))
	g.wantSize(2, "192Mi", "160Mi", true)
	g.domain(sockets(3))
	g.wantSize(3, "192Mi", "160Mi", false)
	g.domain(guest("64Mi"))
	g.wantSize(3, "192Mi", "160Mi", true)
	g.domain(guest("256Mi"))
	g.wantSize(3, "256Mi", "224Mi", false)
	g.domain(func(d *kubevirt.DomainSpec) { d.CPU.Cores, d.CPU.Sockets = 2, 3 })
	g.wantSize(3, "256Mi", "224Mi", true)
}

// resizableType returns an instance type of a running VM that can get 8 sockets and 4 GiB.
func resizableType(name string, change func(*typesapi.VirtualMachineInstancetypeSpec)) *typesapi.VirtualMachineInstancetype {
	of := large()
	of.Name, of.UID = name, types.UID(name)
	of.Spec.CPU.MaxSockets = new(uint32(8))
	of.Spec.Memory.MaxGuest = new(resource.MustParse("4Gi"))
	of.Spec.Memory.OvercommitPercent = 50
	change(&of.Spec)
	return of
}

// TestPlacement: the running instance gets the placement of the template without a restart.
func TestPlacement(t *testing.T) {
	g := resizable(t)
	place := func(change func(*kubevirt.VirtualMachineInstanceSpec)) {
		t.Helper()
		g.template(change)
		g.reconcile()
		g.reconcile()
		want, got := g.vm().Spec.Template.Spec, g.vmi().Spec
		if !equality.Semantic.DeepEqual(want.NodeSelector, got.NodeSelector) || !equality.Semantic.DeepEqual(want.Affinity, got.Affinity) ||
			!equality.Semantic.DeepEqual(want.Tolerations, got.Tolerations) {
			t.Errorf("the instance has %v, %v, %v", got.NodeSelector, got.Affinity, got.Tolerations)
		}
		g.wantSize(1, "64Mi", "32Mi", false)
	}
	place(func(s *kubevirt.VirtualMachineInstanceSpec) { s.NodeSelector = map[string]string{"disk": "fast"} })
	place(func(s *kubevirt.VirtualMachineInstanceSpec) {
		s.Affinity = &corev1.Affinity{NodeAffinity: new(corev1.NodeAffinity)}
		s.Tolerations = []corev1.Toleration{{Key: "maintenance", Operator: corev1.TolerationOpExists}}
	})
	place(func(s *kubevirt.VirtualMachineInstanceSpec) {
		s.NodeSelector, s.Affinity, s.Tolerations = nil, nil, nil
	})
	g.Writes()
	g.reconcile()
	g.expect("")
}

// TestResizeByType: a running instance gets what another instance type has more, if the types
// differ in nothing else. All else waits for a restart.
func TestResizeByType(t *testing.T) {
	g := newRig(t)
	g.Add(t, resizableType("large", func(*typesapi.VirtualMachineInstancetypeSpec) {}))
	g.Add(t, resizableType("huge", func(s *typesapi.VirtualMachineInstancetypeSpec) {
		s.CPU.Guest, s.Memory.Guest = 8, resource.MustParse("2Gi")
	}))
	g.Add(t, resizableType("beyond", func(s *typesapi.VirtualMachineInstancetypeSpec) { s.Memory.Guest = resource.MustParse("8Gi") }))
	g.Add(t, resizableType("other", func(s *typesapi.VirtualMachineInstancetypeSpec) {
		s.CPU.Guest, s.Memory.Guest, s.SchedulerName = 8, resource.MustParse("4Gi"), "mine"
	}))
	g.Add(t, resizableType("whole", func(s *typesapi.VirtualMachineInstancetypeSpec) {
		s.CPU.Guest, s.Memory.Guest, s.Memory.OvercommitPercent = 8, resource.MustParse("4Gi"), 0
	}))
	g.Add(t, resizableType("denser", func(s *typesapi.VirtualMachineInstancetypeSpec) { s.Memory.OvercommitPercent = 90 }))
	g.Add(t, resizableType("rarer", func(s *typesapi.VirtualMachineInstancetypeSpec) { s.Memory.OvercommitPercent = 10 }))
	g.add(always, typed)
	g.reconcile()
	g.phase(kubevirt.Running)
	g.reconcile()
	g.wantSize(4, "1Gi", "512Mi", false)
	for _, tt := range []struct {
		name           string
		sockets        uint32
		guest, request string
		restart        bool
	}{
		{"beyond", 4, "1Gi", "512Mi", true},
		{"denser", 4, "1Gi", "512Mi", true},
		{"rarer", 4, "1Gi", "512Mi", true},
		{"huge", 8, "2Gi", "1Gi", false},
		{"other", 8, "2Gi", "1Gi", true},
		{"whole", 8, "2Gi", "1Gi", true},
		{"missing", 8, "2Gi", "1Gi", true},
		{"huge", 8, "2Gi", "1Gi", false},
		{"large", 8, "2Gi", "1Gi", true},
	} {
		fakecluster.Change(t, g.Cluster, g.vm(), func(vm *kubevirt.VirtualMachine) { vm.Spec.Instancetype.Name = tt.name })
		for range 3 {
			_, _ = g.try()
		}
		t.Log(tt.name)
		g.wantSize(tt.sockets, tt.guest, tt.request, tt.restart)
		if got := g.vmi().Annotations[kubevirt.InstancetypeAnnotation]; (got == tt.name) == tt.restart {
			t.Errorf("type %s: the instance says %s", tt.name, got)
		}
	}
}

// TestStaged: with the cluster's vmRolloutStrategy Stage a running instance stays as it is, until it is LiveUpdate.
func TestStaged(t *testing.T) {
	g := resizable(t)
	rollout := func(s kubevirt.VMRolloutStrategy) {
		g.configure(func(c *kubevirt.KubeVirtConfiguration) { c.VMRolloutStrategy = &s })
	}
	rollout(kubevirt.VMRolloutStrategyStage)
	g.domain(func(d *kubevirt.DomainSpec) { d.CPU.Sockets = 2 })
	g.wantSize(1, "64Mi", "32Mi", true)
	rollout(kubevirt.VMRolloutStrategyLiveUpdate)
	g.reconcile()
	g.reconcile()
	g.wantSize(2, "64Mi", "32Mi", false)
}

// TestLinks: the running instance gets the states of links without a restart, and nothing else of its cards.
func TestLinks(t *testing.T) {
	g := newRig(t)
	g.add(always, func(vm *kubevirt.VirtualMachine) {
		s := &vm.Spec.Template.Spec
		s.Domain.Devices.Interfaces = []kubevirt.Interface{{Name: "default"}, {Name: "lan", State: kubevirt.InterfaceStateLinkDown}}
		s.Networks = []kubevirt.Network{*kubevirt.DefaultPodNetwork(), {Name: "lan", NetworkSource: kubevirt.NetworkSource{Multus: &kubevirt.MultusNetwork{NetworkName: "lan"}}}}
	})
	g.reconcile()
	g.phase(kubevirt.Running)
	g.reconcile()
	g.Writes()
	link := func(first, second kubevirt.InterfaceState) {
		t.Helper()
		g.domain(func(d *kubevirt.DomainSpec) {
			d.Devices.Interfaces[0].State, d.Devices.Interfaces[1].State = first, second
		})
		cards := g.vmi().Spec.Domain.Devices.Interfaces
		if cards[0].State != first || cards[1].State != second || g.restartRequired() {
			t.Errorf("cards %+v, restart required: %t", cards, g.restartRequired())
		}
	}
	link(kubevirt.InterfaceStateLinkDown, kubevirt.InterfaceStateLinkUp)
	link("", kubevirt.InterfaceStateLinkDown)
	link("", "")
	g.Writes()
	g.reconcile()
	g.expect("")
	g.domain(func(d *kubevirt.DomainSpec) { d.Devices.Interfaces[1].Model = "e1000e" })
	if !g.restartRequired() {
		t.Error("another model needs no restart")
	}
}

// TestNetworks: the running instance names the template's network without a restart, if it can migrate.
func TestNetworks(t *testing.T) {
	g := newRig(t)
	g.add(always, func(vm *kubevirt.VirtualMachine) {
		s := &vm.Spec.Template.Spec
		s.Domain.Devices.Interfaces = []kubevirt.Interface{{Name: "default"}, {Name: "lan"}}
		s.Networks = []kubevirt.Network{*kubevirt.DefaultPodNetwork(), {Name: "lan", NetworkSource: kubevirt.NetworkSource{Multus: &kubevirt.MultusNetwork{NetworkName: "one"}}}}
	})
	g.reconcile()
	g.phase(kubevirt.Running)
	g.reconcile()
	named := func(definition, want string, restart bool) {
		t.Helper()
		g.template(func(s *kubevirt.VirtualMachineInstanceSpec) { s.Networks[1].Multus.NetworkName = definition })
		g.reconcile()
		g.reconcile()
		if has := g.vmi().Spec.Networks[1].Multus.NetworkName; has != want || g.restartRequired() != restart {
			t.Errorf("network %s, restart required: %t; want %s, %t", has, g.restartRequired(), want, restart)
		}
	}
	named("two", "one", true)
	fakecluster.Change(t, g.Cluster, g.vmi(), func(vmi *kubevirt.VirtualMachineInstance) {
		vmi.Status.Conditions = append(vmi.Status.Conditions, kubevirt.VirtualMachineInstanceCondition{
			Type: kubevirt.VirtualMachineInstanceIsMigratable, Status: corev1.ConditionTrue,
		})
	})
	named("two", "two", false)
	named("elsewhere/three", "elsewhere/three", false)
	g.template(func(s *kubevirt.VirtualMachineInstanceSpec) { s.Networks[1].Multus.Default = true })
	g.reconcile()
	g.reconcile()
	if !g.restartRequired() {
		t.Error("another default network needs no restart")
	}
}
