package pod

import (
	"slices"
	"testing"

	"gotest.tools/v3/assert"
	corev1 "k8s.io/api/core/v1"
	kubevirt "kubevirt.io/api/core/v1"
)

// TestCardsOfAMove: the target's pod has the networks of the cards that the VM has, and not of one that it is about to get.
func TestCardsOfAMove(t *testing.T) {
	vmi := new(kubevirt.VirtualMachineInstance)
	for _, name := range []string{"own", "got", "later", "absent"} {
		vmi.Spec.Domain.Devices.Interfaces = append(vmi.Spec.Domain.Devices.Interfaces, kubevirt.Interface{Name: name})
		vmi.Spec.Networks = append(vmi.Spec.Networks, kubevirt.Network{
			Name: name, NetworkSource: kubevirt.NetworkSource{Multus: &kubevirt.MultusNetwork{NetworkName: name}},
		})
	}
	vmi.Spec.Domain.Devices.Interfaces[3].State = kubevirt.InterfaceStateAbsent
	own := new(corev1.Pod)
	own.Annotations = map[string]string{AnnotationStartCards: "own", AnnotationNetworks: "[]"}
	assert.NilError(t, SetPluggedCards(own, []PluggedCard{{Name: "got"}}))
	assert.DeepEqual(t, CardsToPlug(vmi, own), []string{"got", "later"})
	moved := AtStart(AsMoved(vmi, own))
	var names []string
	for _, n := range moved.Spec.Networks {
		names = append(names, n.Name)
	}
	assert.DeepEqual(t, names, []string{"own", "got"})
	assert.Equal(t, len(moved.Spec.Domain.Devices.Interfaces), 2)
	assert.Equal(t, len(vmi.Spec.Networks), 4)

	annotations := map[string]string{}
	assert.NilError(t, addNetworks(annotations, moved, nil))
	assert.Equal(t, annotations[AnnotationStartCards], "own,got")
	target := &corev1.Pod{}
	target.Annotations = annotations
	assert.Assert(t, !slices.Contains(CardsToPlug(vmi, target), "got"))
	assert.DeepEqual(t, CardsToPlug(vmi, target), []string{"later"})

	assert.NilError(t, SetPluggedCards(own, nil))
	_, has := own.Annotations[AnnotationPluggedCards]
	assert.Assert(t, !has)
}

// TestPluggableCards: no running VM gets a card of another kind.
func TestPluggableCards(t *testing.T) {
	s := &kubevirt.VirtualMachineInstanceSpec{Networks: []kubevirt.Network{
		*kubevirt.DefaultPodNetwork(),
		{Name: "lan", NetworkSource: kubevirt.NetworkSource{Multus: &kubevirt.MultusNetwork{NetworkName: "lan"}}},
	}}
	s.Domain.Devices.Interfaces = []kubevirt.Interface{{Name: "default"}, {Name: "lan", State: kubevirt.InterfaceStateAbsent}}
	assert.Assert(t, PluggableCard(s, "lan"))
	assert.Assert(t, !PluggableCard(s, "default"))
	assert.Assert(t, !PluggableCard(s, "none"))
	assert.Assert(t, LosableCard(s, "lan"))
	s.Domain.Devices.Interfaces[1].PciAddress = "0000:00:05.0"
	assert.Assert(t, PluggableCard(s, "lan") && !LosableCard(s, "lan"))
	s.Domain.Devices.UseVirtioTransitional = new(true)
	assert.Assert(t, !PluggableCard(s, "lan"))
	s.Domain.Devices.Interfaces[1].Model = "e1000e"
	assert.Assert(t, PluggableCard(s, "lan"))
	s.Domain.Devices.Interfaces[1].BootOrder = new(uint(1))
	assert.Assert(t, !PluggableCard(s, "lan"))
	s.Domain.Devices.Interfaces[1].BootOrder = nil
	s.Domain.Devices.DisableHotplug = true
	assert.Assert(t, !PluggableCard(s, "lan"))
}

// TestLostCards: a VM loses absent cards that it started with, and the numbers of the others stay.
func TestLostCards(t *testing.T) {
	vmi := new(kubevirt.VirtualMachineInstance)
	for _, name := range []string{"default", "one", "two", "got"} {
		card := kubevirt.Interface{Name: name, State: kubevirt.InterfaceStateAbsent}
		network := kubevirt.Network{Name: name, NetworkSource: kubevirt.NetworkSource{Multus: &kubevirt.MultusNetwork{NetworkName: name}}}
		if name == "default" {
			network.NetworkSource = kubevirt.DefaultPodNetwork().NetworkSource
		}
		vmi.Spec.Domain.Devices.Interfaces = append(vmi.Spec.Domain.Devices.Interfaces, card)
		vmi.Spec.Networks = append(vmi.Spec.Networks, network)
	}
	own := new(corev1.Pod)
	own.Annotations = map[string]string{AnnotationNetworks: `[{"name": "one", "interface": "net1"}, {"name": "two", "interface": "net2"}]`}
	assert.Equal(t, len(CardsToLose(vmi, own)), 0) // of an older version
	own.Annotations[AnnotationStartCards] = "one,two"
	assert.DeepEqual(t, CardsToLose(vmi, own), []string{"one", "two"})
	SetLost(own, "one")
	SetLost(own, "none")
	assert.Equal(t, own.Annotations[AnnotationStartCards], ",two")
	assert.DeepEqual(t, CardsToLose(vmi, own), []string{"two"})
	assert.Equal(t, StartNumber(own, "two"), 2)
	assert.Assert(t, !StartedWithCard(own, "one") && !StartedWithCard(own, ""))

	assert.Assert(t, !OtherNetworks(vmi, own))
	vmi.Spec.Networks[2].Multus.NetworkName = "other"
	assert.Assert(t, OtherNetworks(vmi, own))
}
