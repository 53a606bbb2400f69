package hotplug

import (
	"fmt"
	"strings"
	"testing"

	"gotest.tools/v3/assert"
	kubevirt "kubevirt.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/nodevirt/nodevirt/controller/pod"
)

// cards sets the states of the instance's cards, as NAME: STATE.
func (g *rig) cards(states ...kubevirt.InterfaceState) {
	g.t.Helper()
	g.change(func(vmi *kubevirt.VirtualMachineInstance) {
		var all []kubevirt.Interface
		for i, s := range states {
			all = append(all, kubevirt.Interface{Name: fmt.Sprint("net", i), State: s})
		}
		vmi.Spec.Domain.Devices.Interfaces = all
	})
}

// noted checks what the VM's pod says of links.
func (g *rig) noted(want string, known bool) {
	g.t.Helper()
	assert.NilError(g.t, g.Get(g.t.Context(), client.ObjectKeyFromObject(g.own), g.own))
	text, has := g.own.Annotations[pod.AnnotationLinks]
	assert.Equal(g.t, fmt.Sprint(text, has), fmt.Sprint(want, known))
}

// TestLinks: the node gets one order for each change, and again for the next pod.
func TestLinks(t *testing.T) {
	g := newRig(t)
	const up, down = kubevirt.InterfaceStateLinkUp, kubevirt.InterfaceStateLinkDown
	g.cards("", "")
	g.reconcile()
	assert.Equal(t, len(g.orders), 0)
	g.noted("", false)

	g.cards("", down)
	g.broken = true
	assert.Equal(t, g.reconcile().RequeueAfter, retry)
	g.noted("", false)
	if events := fmt.Sprint(g.Events()); !strings.Contains(events, "Warning FailedLinkState Links of network cards: link-state in pod") {
		t.Error(events)
	}
	g.broken = false
	for range 2 {
		assert.Equal(t, int(g.reconcile().RequeueAfter), 0)
		g.noted("net1", true)
	}
	g.cards(down, down)
	g.reconcile()
	g.noted("net0,net1", true)
	g.cards(up, "")
	g.reconcile()
	g.noted("", true)
	assert.DeepEqual(t, g.orders, []string{
		`link-state {"down":["net1"]}`, `link-state {"down":["net0","net1"]}`, `link-state {"down":[]}`,
	})

	delete(g.own.Annotations, pod.AnnotationLinks)
	assert.NilError(t, g.Update(t.Context(), g.own)) // the target of a migration
	g.reconcile()
	g.noted("", true)
	assert.Equal(t, len(g.orders), 4)

	g.r.Nodes = nodeFunc(`{"down": ["other"]}`)
	g.cards(up, down)
	assert.Equal(t, g.reconcile().RequeueAfter, retry)
	g.noted("", true)

	// The state was removed from a card without a link.
	g.r.Nodes = g
	g.cards("", "")
	g.change(func(vmi *kubevirt.VirtualMachineInstance) {
		vmi.Status.Interfaces = []kubevirt.VirtualMachineInstanceNetworkInterface{{Name: "net1", LinkState: string(down)}}
	})
	g.own.Annotations[pod.AnnotationLinks] = "net1"
	assert.NilError(t, g.Update(t.Context(), g.own))
	g.reconcile()
	g.noted("", true)
}
