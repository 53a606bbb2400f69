package hotplug

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"gotest.tools/v3/assert"
	corev1 "k8s.io/api/core/v1"
	kubevirt "kubevirt.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/nodevirt/nodevirt/controller/pod"
	"github.com/nodevirt/nodevirt/shim/vm/hotplug/order"
	"github.com/nodevirt/nodevirt/shim/vmspec"
	"github.com/nodevirt/nodevirt/test/fakecluster"
)

// card is the node's part of the orders about network cards.
func (g *rig) card(name, argument string) ([]byte, error) {
	if name == order.CardAttach {
		var a order.CardAttachment
		var i struct{ Name string }
		if err := errors.Join(json.Unmarshal([]byte(argument), &a), json.Unmarshal(a.Interface, &i)); err != nil {
			return nil, err
		}
		if have, is := g.plugged[i.Name]; is && have.Container != a.Container {
			return nil, errors.New("already exists")
		}
		g.plugged[i.Name] = order.Card{Name: i.Name, State: order.Attached, MAC: "02:00:00:00:00:01", IPs: []string{"10.1.0.2"}, Container: a.Container}
		return json.Marshal(g.plugged[i.Name])
	}
	var n order.Name
	if err := json.Unmarshal([]byte(argument), &n); err != nil {
		return nil, err
	}
	c, is := g.plugged[n.Name]
	switch {
	case !is:
		c = order.Card{Name: n.Name, State: order.None}
	case name == order.CardDetach && g.stubborn:
		c.State = order.Detaching
		g.plugged[n.Name] = c
	case name == order.CardDetach:
		delete(g.plugged, n.Name)
		c = order.Card{Name: n.Name, State: order.None}
	}
	return json.Marshal(c)
}

// plugCard adds a network card to the instance.
func (g *rig) plugCard(name string, change ...func(*kubevirt.Interface)) {
	g.t.Helper()
	g.change(func(vmi *kubevirt.VirtualMachineInstance) {
		one := kubevirt.Interface{Name: name, InterfaceBindingMethod: kubevirt.InterfaceBindingMethod{Bridge: &kubevirt.InterfaceBridge{}}}
		for _, do := range change {
			do(&one)
		}
		vmi.Spec.Domain.Devices.Interfaces = append(vmi.Spec.Domain.Devices.Interfaces, one)
		vmi.Spec.Networks = append(vmi.Spec.Networks, kubevirt.Network{
			Name: name, NetworkSource: kubevirt.NetworkSource{Multus: &kubevirt.MultusNetwork{NetworkName: "nets/" + name}},
		})
	})
}

// wants checks the cards that the VM's pod notes.
func (g *rig) wants(names ...string) {
	g.t.Helper()
	assert.NilError(g.t, g.Get(g.t.Context(), client.ObjectKeyFromObject(g.own), g.own))
	var has []string
	for _, c := range pod.PluggedCards(g.own) {
		has = append(has, c.Name)
	}
	assert.DeepEqual(g.t, has, names)
}

func pluggedRig(t *testing.T) *rig {
	t.Helper()
	g := newRig(t)
	g.plugCard("lan", func(i *kubevirt.Interface) { i.State = kubevirt.InterfaceStateLinkDown })
	g.reconcile()
	g.wants()
	g.run(g.attachment())
	g.reconcile()
	g.wants("lan")
	return g
}

// TestCards: the node of a VM attaches a network card once its attachment pod runs, and the pod goes when the
// guest has released the card.
func TestCards(t *testing.T) {
	g := pluggedRig(t)
	p := g.attachment()
	assert.Equal(t, p.Annotations[pod.AnnotationNetworks], fmt.Sprintf(`[{"name":"lan","namespace":"nets","interface":%q}]`, vmspec.PluginInterface("lan")))
	assert.Equal(t, p.Annotations[order.CardAnnotation], "lan")
	assert.Equal(t, len(p.Spec.Volumes), 0)
	assert.Assert(t, strings.HasPrefix(p.Name, "hp-card-lan-"), p.Name)
	assert.DeepEqual(t, pod.PluggedCards(g.own), []pod.PluggedCard{{Name: "lan", Container: container, MAC: "02:00:00:00:00:01", IPs: []string{"10.1.0.2"}}})
	// It came without a link, and links are ordered for cards that the VM has.
	assert.Equal(t, g.orders[0], `link-state {"down":[]}`)
	assert.Equal(t, g.orders[1], fmt.Sprintf(`card-attach {"interface":{"name":"lan","bridge":{},"state":"down"},"container":%q}`, container))
	assert.Equal(t, g.orders[2], `link-state {"down":["lan"]}`)
	assert.Equal(t, len(g.orders), 3)
	g.reconcile()
	assert.Equal(t, len(g.orders), 3)

	g.stubborn = true
	g.change(func(vmi *kubevirt.VirtualMachineInstance) {
		vmi.Spec.Domain.Devices.Interfaces[0].State = kubevirt.InterfaceStateAbsent
	})
	assert.Equal(t, g.reconcile().RequeueAfter, retry)
	g.wants("lan")
	assert.Equal(t, len(g.attachments()), 1)
	g.stubborn = false
	g.reconcile()
	g.wants()
	assert.Equal(t, len(g.attachments()), 0)
	assert.Equal(t, len(g.plugged), 0)
	if events := fmt.Sprint(g.Events()); !strings.Contains(events, "Attached interface lan") || !strings.Contains(events, "Detached interface lan") {
		t.Error(events)
	}
}

// TestCardsOfThePod: the cards with which the VM has started are not plugged.
func TestCardsOfThePod(t *testing.T) {
	g := newRig(t)
	fakecluster.Change(t, g.Cluster, g.own, func(p *corev1.Pod) {
		p.Annotations = map[string]string{pod.AnnotationStartCards: "own", pod.AnnotationNetworks: "[]"}
	})
	g.plugCard("own")
	g.plugCard("nic", func(i *kubevirt.Interface) {
		i.InterfaceBindingMethod = kubevirt.InterfaceBindingMethod{SRIOV: &kubevirt.InterfaceSRIOV{}}
	})
	g.reconcile()
	assert.Equal(t, len(g.attachments())+len(g.orders), 0)
	fakecluster.Change(t, g.Cluster, g.own, func(p *corev1.Pod) { delete(p.Annotations, pod.AnnotationStartCards) }) // of an older version
	g.plugCard("lan")
	g.reconcile()
	assert.Equal(t, len(g.attachments())+len(g.orders), 0)
}

// TestCardsOfTheStart: the node of a VM takes away an absent card with which the VM has started, and the VM's pod notes
// that. The VM may get another one of the name.
func TestCardsOfTheStart(t *testing.T) {
	g := newRig(t)
	fakecluster.Change(t, g.Cluster, g.own, func(p *corev1.Pod) {
		p.Annotations = map[string]string{pod.AnnotationStartCards: "own,more", pod.AnnotationNetworks: "[]"}
	})
	g.plugCard("own")
	g.plugCard("more")
	g.plugged["own"] = order.Card{Name: "own", State: order.Attached}
	g.reconcile()
	assert.Equal(t, len(g.orders), 0)
	g.stubborn = true
	g.change(func(vmi *kubevirt.VirtualMachineInstance) {
		vmi.Spec.Domain.Devices.Interfaces[0].State = kubevirt.InterfaceStateAbsent
	})
	noted := func() string {
		g.wants()
		return g.own.Annotations[pod.AnnotationStartCards]
	}
	assert.Equal(t, g.reconcile().RequeueAfter, retry)
	assert.Equal(t, noted(), "own,more")
	g.stubborn = false
	g.reconcile()
	assert.Equal(t, noted(), ",more")
	assert.Equal(t, len(g.plugged), 0)
	if events := fmt.Sprint(g.Events()); !strings.Contains(events, "Detached interface own") {
		t.Error(events)
	}
	given := len(g.orders)
	g.reconcile()
	assert.Equal(t, len(g.orders), given)

	g.change(func(vmi *kubevirt.VirtualMachineInstance) { vmi.Spec.Domain.Devices.Interfaces[0].State = "" })
	g.reconcile()
	g.run(g.attachment())
	g.reconcile()
	g.wants("own")
}

// TestCardFails: an order that fails is given again, and the user reads why.
func TestCardFails(t *testing.T) {
	g := newRig(t)
	g.plugCard("lan")
	g.reconcile()
	g.run(g.attachment())
	g.broken = true
	assert.Equal(t, g.reconcile().RequeueAfter, retry)
	g.wants()
	if events := fmt.Sprint(g.Events()); !strings.Contains(events, "Warning FailedAttachInterface Interface lan: card-attach in pod") {
		t.Error(events)
	}
	assert.Assert(t, strings.Contains(g.attachment().Annotations[pod.AnnotationProblem], "the node is away")) // for the instance's conditions
	g.broken = false
	g.reconcile()
	g.wants("lan")
	g.r.Nodes = nodeFunc(`{"name": "other", "state": "attached"}`)
	g.change(func(vmi *kubevirt.VirtualMachineInstance) { pod.RemoveCards(&vmi.Spec, "lan") })
	assert.Equal(t, g.reconcile().RequeueAfter, retry)
	g.wants("lan")
}

// TestCardsPodGoes: a card whose attachment pod has gone is detached, and attached to the next one.
func TestCardsPodGoes(t *testing.T) {
	g := pluggedRig(t)
	fakecluster.Change(t, g.Cluster, g.attachment(), func(p *corev1.Pod) { p.Status.Phase = corev1.PodFailed })
	g.reconcile()
	g.wants()
	p := g.attachment()
	g.run(p)
	fakecluster.Change(t, g.Cluster, g.attachment(), func(p *corev1.Pod) {
		p.Status.ContainerStatuses[0].ContainerID = "containerd://" + strings.Repeat("d", 64)
	})
	g.reconcile()
	g.wants("lan")
	assert.Equal(t, g.plugged["lan"].Container, strings.Repeat("d", 64))
	assert.Assert(t, slices.Contains(g.orders, `card-detach {"name":"lan"}`))

	// A card that was asked for twice, of which the instance keeps nothing, goes with its pod.
	g.change(func(vmi *kubevirt.VirtualMachineInstance) { pod.RemoveCards(&vmi.Spec, "lan") })
	g.reconcile()
	g.wants()
	assert.Equal(t, len(g.attachments()), 0)

	g.plugCard("lan")
	g.reconcile()
	g.guest.Ended = true
	g.reconcile()
	assert.Equal(t, len(g.attachments()), 0)
}

// TestCardsInOrder: cards that came with one change are attached in the order of the spec, in whichever order their attachment
// pods start. A card whose network does not come keeps the others waiting for a while alone.
func TestCardsInOrder(t *testing.T) {
	for _, tt := range []struct {
		name string
		do   func(g *rig, first *corev1.Pod)
		want []string
	}{
		{"the first pod starts last", func(g *rig, first *corev1.Pod) { g.run(first) }, []string{"one", "two"}},
		{"the first pod never starts", func(g *rig, first *corev1.Pod) {
			fakecluster.Change(t, g.Cluster, first, func(p *corev1.Pod) {
				p.CreationTimestamp.Time = p.CreationTimestamp.Add(-cardOrderTime)
			})
		}, []string{"two"}},
		{"the first pod says why it does not start", func(g *rig, first *corev1.Pod) {
			fakecluster.Change(t, g.Cluster, first, func(p *corev1.Pod) {
				p.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodScheduled, Status: corev1.ConditionFalse}}
			})
		}, []string{"two"}},
		{"the first card is not wanted any more", func(g *rig, _ *corev1.Pod) {
			g.change(func(vmi *kubevirt.VirtualMachineInstance) { pod.RemoveCards(&vmi.Spec, "one") })
		}, []string{"two"}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			g := newRig(t)
			g.plugCard("one")
			g.plugCard("two")
			g.reconcile()
			var pods [2]*corev1.Pod
			for _, p := range g.attachments() {
				fakecluster.Change(t, g.Cluster, &p, func(p *corev1.Pod) { p.CreationTimestamp.Time = g.r.Now() })
				pods[map[string]int{"one": 0, "two": 1}[pod.HeldCard(&p)]] = &p
			}
			g.run(pods[1])
			if again := g.reconcile().RequeueAfter; again <= 0 || again > cardOrderTime {
				t.Errorf("again after %s", again)
			}
			g.wants()
			tt.do(g, pods[0])
			g.reconcile()
			g.wants(tt.want...)
		})
	}
}
