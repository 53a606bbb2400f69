package vm

import (
	"slices"
	"strings"
	"testing"

	"gotest.tools/v3/assert"
	kubevirt "kubevirt.io/api/core/v1"

	"github.com/nodevirt/nodevirt/controller/pod"
	"github.com/nodevirt/nodevirt/shim/vmspec"
	"github.com/nodevirt/nodevirt/test/fakecluster"
)

// addCard adds a network card on a network of Multus to a spec.
func addCard(s *kubevirt.VirtualMachineInstanceSpec, name string) {
	s.Domain.Devices.Interfaces = append(s.Domain.Devices.Interfaces, kubevirt.Interface{
		Name: name, InterfaceBindingMethod: kubevirt.InterfaceBindingMethod{Bridge: &kubevirt.InterfaceBridge{}},
	})
	s.Networks = append(s.Networks, kubevirt.Network{Name: name, NetworkSource: kubevirt.NetworkSource{Multus: &kubevirt.MultusNetwork{NetworkName: name}}})
}

// running returns a rig whose VM runs with its pod's network and the card own.
func withNetworks(t *testing.T) *rig {
	t.Helper()
	g := newRig(t)
	g.add(always, func(vm *kubevirt.VirtualMachine) {
		s := &vm.Spec.Template.Spec
		s.Domain.Devices.Interfaces = []kubevirt.Interface{*kubevirt.DefaultMasqueradeNetworkInterface()}
		s.Networks = []kubevirt.Network{*kubevirt.DefaultPodNetwork()}
		addCard(s, "own")
		addCard(s, "never")
		s.Domain.Devices.Interfaces[2].State = kubevirt.InterfaceStateAbsent
	})
	g.reconcile()
	g.phase(kubevirt.Running)
	g.reportCards("default eth0", "own net1")
	g.reconcile()
	return g
}

// reportCards sets what the instance reports of cards, as NAME DEVICE.
func (g *rig) reportCards(all ...string) {
	g.t.Helper()
	fakecluster.Change(g.t, g.Cluster, g.vmi(), func(vmi *kubevirt.VirtualMachineInstance) {
		vmi.Status.Interfaces = nil
		for _, one := range all {
			name, device, _ := strings.Cut(one, " ")
			if device == "" {
				device = vmspec.PluginInterface(name)
			}
			vmi.Status.Interfaces = append(vmi.Status.Interfaces, kubevirt.VirtualMachineInstanceNetworkInterface{Name: name, PodInterfaceName: device})
		}
	})
}

// wantCards checks the cards and networks of the instance and of the template, and whether a restart is required.
func (g *rig) wantCards(instance, template string, restart bool) {
	g.t.Helper()
	for range 3 {
		g.reconcile()
	}
	names := func(s *kubevirt.VirtualMachineInstanceSpec) string {
		var cards, networks []string
		for _, c := range s.Domain.Devices.Interfaces {
			name := c.Name
			if c.State != "" {
				name += ":" + string(c.State)
			}
			cards, networks = append(cards, name), append(networks, c.Name)
		}
		for _, n := range s.Networks {
			if !slices.Contains(networks, n.Name) {
				g.t.Errorf("network %s has no card", n.Name)
			}
		}
		if len(s.Networks) != len(networks) {
			g.t.Errorf("%d networks for cards %s", len(s.Networks), cards)
		}
		return strings.Join(cards, " ")
	}
	assert.Equal(g.t, names(&g.vmi().Spec), instance, "instance")
	assert.Equal(g.t, names(&g.vm().Spec.Template.Spec), template, "template")
	assert.Equal(g.t, g.restartRequired(), restart, "restart")
	g.Writes()
	g.reconcile()
	g.expect("")
}

// TestCards: the running instance gets and loses network cards as its template says, without a restart.
func TestCards(t *testing.T) {
	g := withNetworks(t)
	g.wantCards("default own", "default own", false)
	state := func(name string, s kubevirt.InterfaceState) {
		t.Helper()
		g.template(func(spec *kubevirt.VirtualMachineInstanceSpec) { pod.CardOf(spec, name).State = s })
	}
	g.template(func(s *kubevirt.VirtualMachineInstanceSpec) { addCard(s, "lan") })
	g.wantCards("default own lan", "default own lan", false)
	g.reportCards("default eth0", "own net1", "lan")
	state("lan", kubevirt.InterfaceStateLinkDown)
	g.wantCards("default own lan:down", "default own lan:down", false)
	state("own", kubevirt.InterfaceStateLinkDown)
	g.wantCards("default own:down lan:down", "default own:down lan:down", false)

	state("lan", kubevirt.InterfaceStateAbsent)
	g.wantCards("default own:down lan:absent", "default own:down lan:absent", false)
	g.reportCards("default eth0", "own net1")
	g.wantCards("default own:down", "default own:down", false)

	// It may come again, and goes as soon as it was asked for and not needed.
	g.template(func(s *kubevirt.VirtualMachineInstanceSpec) { addCard(s, "lan") })
	g.wantCards("default own:down lan", "default own:down lan", false)
	state("lan", kubevirt.InterfaceStateAbsent)
	g.wantCards("default own:down", "default own:down", false)

	// So do cards that it was created with, once the VM has lost them.
	state("own", kubevirt.InterfaceStateAbsent)
	g.wantCards("default own:absent", "default own:absent", false)
	state("own", "") // it is on its way out
	g.wantCards("default own:absent", "default own", false)
	g.reportCards("default eth0")
	g.wantCards("default own", "default own", false) // and another one comes
	g.reportCards("default eth0", "own")
	state("own", kubevirt.InterfaceStateAbsent)
	g.wantCards("default own:absent", "default own:absent", false)
	g.reportCards("default eth0")
	g.wantCards("default", "default", false)
	notes, _ := pod.CardsOf(g.vmi())
	assert.DeepEqual(t, notes, pod.Cards{Start: []string{"default"}})
}

// TestLostCard: an instance that has lost a card takes over what else a running VM can take over, and requires a restart
// for the rest.
func TestLostCard(t *testing.T) {
	g := withNetworks(t)
	g.template(func(s *kubevirt.VirtualMachineInstanceSpec) {
		pod.CardOf(s, "own").State = kubevirt.InterfaceStateAbsent
		s.NodeSelector = map[string]string{"a": "b"}
	})
	g.wantCards("default own:absent", "default own:absent", false)
	g.reportCards("default eth0")
	g.wantCards("default", "default", false)
	assert.Equal(t, g.vmi().Spec.NodeSelector["a"], "b")
	g.template(func(s *kubevirt.VirtualMachineInstanceSpec) { s.NodeSelector["a"] = "c" })
	g.wantCards("default", "default", false)
	assert.Equal(t, g.vmi().Spec.NodeSelector["a"], "c")
	g.template(func(s *kubevirt.VirtualMachineInstanceSpec) { s.Hostname = "other" })
	g.reconcile()
	g.reconcile()
	assert.Assert(t, g.restartRequired())
}

// TestCardsThatNeedARestart: a card that no running VM gets, and another edit of one that it has got, wait for a restart.
func TestCardsThatNeedARestart(t *testing.T) {
	for name, change := range map[string]func(s *kubevirt.VirtualMachineInstanceSpec){
		"sriov": func(s *kubevirt.VirtualMachineInstanceSpec) {
			addCard(s, "nic")
			pod.CardOf(s, "nic").InterfaceBindingMethod = kubevirt.InterfaceBindingMethod{SRIOV: &kubevirt.InterfaceSRIOV{}}
		},
		"boot order": func(s *kubevirt.VirtualMachineInstanceSpec) {
			addCard(s, "nic")
			pod.CardOf(s, "nic").BootOrder = new(uint(1))
		},
		"plug-in": func(s *kubevirt.VirtualMachineInstanceSpec) {
			addCard(s, "nic")
			pod.CardOf(s, "nic").InterfaceBindingMethod, pod.CardOf(s, "nic").Binding = kubevirt.InterfaceBindingMethod{}, &kubevirt.PluginBinding{Name: "passt"}
		},
		"another model":   func(s *kubevirt.VirtualMachineInstanceSpec) { pod.CardOf(s, "lan").Model = "e1000e" },
		"another network": func(s *kubevirt.VirtualMachineInstanceSpec) { pod.NetworkOf(s, "lan").Multus.NetworkName = "other" },
		"removed":         func(s *kubevirt.VirtualMachineInstanceSpec) { pod.RemoveCards(s, "lan") },
		"its pod's":       func(s *kubevirt.VirtualMachineInstanceSpec) { pod.RemoveCards(s, "own") },
		"default": func(s *kubevirt.VirtualMachineInstanceSpec) {
			pod.CardOf(s, "default").State = kubevirt.InterfaceStateAbsent
		},
	} {
		t.Run(name, func(t *testing.T) {
			g := withNetworks(t)
			g.template(func(s *kubevirt.VirtualMachineInstanceSpec) { addCard(s, "lan") })
			g.reconcile()
			g.reportCards("default eth0", "own net1", "lan")
			g.wantCards("default own lan", "default own lan", false)
			g.template(change)
			g.reconcile()
			g.reconcile()
			assert.Assert(t, g.restartRequired())
			assert.Equal(t, len(g.vmi().Spec.Domain.Devices.Interfaces), 3)
		})
	}
}

// TestCardsAfterAMigration: a card that moved with its guest is the next pod's.
func TestCardsAfterAMigration(t *testing.T) {
	g := withNetworks(t)
	g.template(func(s *kubevirt.VirtualMachineInstanceSpec) { addCard(s, "lan") })
	g.reconcile()
	g.reportCards("default eth0", "own net1", "lan net2")
	g.wantCards("default own lan", "default own lan", false)
	g.template(func(s *kubevirt.VirtualMachineInstanceSpec) {
		pod.CardOf(s, "lan").State = kubevirt.InterfaceStateAbsent
	})
	g.wantCards("default own lan:absent", "default own lan:absent", false)
	g.reportCards("default eth0", "own net1")
	g.wantCards("default own", "default own", false)
}

// TestCardsOfOlderInstances: an instance that an older version created gets no cards.
func TestCardsOfOlderInstances(t *testing.T) {
	g := newRig(t)
	g.add(always, func(vm *kubevirt.VirtualMachine) { addCard(&vm.Spec.Template.Spec, "own") })
	g.reconcile()
	g.phase(kubevirt.Running, func(vmi *kubevirt.VirtualMachineInstance) { delete(vmi.Annotations, pod.AnnotationCards) })
	g.wantCards("own", "own", false)
	g.template(func(s *kubevirt.VirtualMachineInstanceSpec) { addCard(s, "lan") })
	g.wantCards("own", "own lan", true)
}
