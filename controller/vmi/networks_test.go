package vmi

import (
	"strings"
	"testing"

	"gotest.tools/v3/assert"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	kubevirt "kubevirt.io/api/core/v1"
	ctrl "sigs.k8s.io/controller-runtime"

	"github.com/nodevirt/nodevirt/controller/pod"
	"github.com/nodevirt/nodevirt/test/fakecluster"
)

// addNetwork makes a network of Multus with an annotation; empty for none.
func (g *rig) addNetwork(namespace, name, resource string) {
	g.t.Helper()
	n := &unstructured.Unstructured{Object: map[string]any{"apiVersion": "k8s.cni.cncf.io/v1", "kind": "NetworkAttachmentDefinition"}}
	n.SetNamespace(namespace)
	n.SetName(name)
	if resource != "" {
		n.SetAnnotations(map[string]string{annotationResource: resource})
	}
	g.Add(g.t, n)
}

// withCards adds SR-IOV interfaces on networks.
func withCards(networks ...string) func(*kubevirt.VirtualMachineInstance) {
	return func(vmi *kubevirt.VirtualMachineInstance) {
		for i, name := range networks {
			card := string(rune('a' + i))
			vmi.Spec.Networks = append(vmi.Spec.Networks, kubevirt.Network{
				Name: card, NetworkSource: kubevirt.NetworkSource{Multus: &kubevirt.MultusNetwork{NetworkName: name}},
			})
			vmi.Spec.Domain.Devices.Interfaces = append(vmi.Spec.Domain.Devices.Interfaces, kubevirt.Interface{
				Name: card, InterfaceBindingMethod: kubevirt.InterfaceBindingMethod{SRIOV: new(kubevirt.InterfaceSRIOV)},
			})
		}
	}
}

// TestNetworkResources: the pod requests a device for each interface, of its network's resource.
func TestNetworkResources(t *testing.T) {
	g := newRig(t)
	g.addNetwork("sriov", "fast", "example.com/vfs")
	g.addNetwork(web.Namespace, "fast", "example.com/others")
	g.addNetwork(web.Namespace, "plain", "")
	g.add(withCards("sriov/fast", "sriov/fast", "fast", "plain"))
	g.reconcile()
	r := g.onePod().Spec.Containers[0].Resources
	for name, want := range map[string]string{"example.com/vfs": "2", "example.com/others": "1"} {
		limit, request := r.Limits[corev1.ResourceName(name)], r.Requests[corev1.ResourceName(name)]
		if limit.String() != want || request.String() != want {
			t.Errorf("%s: limit %s, request %s, want %s", name, limit.String(), request.String(), want)
		}
	}
	if len(r.Limits) != 2 {
		t.Errorf("limits %v", r.Limits)
	}
}

// TestNetworkResourcesRefused: a network's author gets no other resource into the pod.
func TestNetworkResourcesRefused(t *testing.T) {
	for resource, want := range map[string]string{
		"memory":               `network fast: annotation k8s.v1.cni.cncf.io/resourceName: "memory" is not a resource of a device plug-in`,
		"kubernetes.io/memory": "is not a resource of a device plug-in",
		"missing":              "read the resource of network fast: ",
	} {
		g := newRig(t)
		if resource != "missing" {
			g.addNetwork(web.Namespace, "fast", resource)
		}
		vmi := &kubevirt.VirtualMachineInstance{ObjectMeta: metav1.ObjectMeta{Namespace: web.Namespace, Name: web.Name}}
		withCards("fast")(vmi)
		if all, err := (&surroundings{client: g.Cached(), live: g.Client}).networkResources(t.Context(), vmi); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, %v", resource, all, err)
		}
	}
}

// TestNetworkMissing: the instance says which network is missing, and gets its pod once that exists.
func TestNetworkMissing(t *testing.T) {
	g := newRig(t)
	g.add(withCards("fast"))
	if _, err := g.r.Reconcile(t.Context(), ctrl.Request{NamespacedName: web}); err == nil {
		t.Error("no retry")
	}
	c := g.condition(kubevirt.VirtualMachineInstanceSynchronized)
	if c == nil || c.Reason != "FailedCreate" || !strings.Contains(c.Message, "read the resource of network fast") {
		t.Errorf("condition %+v", c)
	}
	if e := g.Events(); !strings.Contains(e, "Warning FailedCreate") {
		t.Errorf("events %q", e)
	}
	g.addNetwork(web.Namespace, "fast", "example.com/vfs")
	g.reconcile()
	g.onePod()
}

// TestMigrationRequired: a running instance requires a migration while it names another network than its pod is on.
func TestMigrationRequired(t *testing.T) {
	g := newRig(t)
	g.add(func(vmi *kubevirt.VirtualMachineInstance) {
		vmi.Spec.Domain.Devices.Interfaces = []kubevirt.Interface{{Name: "default", InterfaceBindingMethod: kubevirt.InterfaceBindingMethod{Masquerade: new(kubevirt.InterfaceMasquerade)}}, {Name: "lan"}}
		vmi.Spec.Networks = []kubevirt.Network{*kubevirt.DefaultPodNetwork(), {Name: "lan", NetworkSource: kubevirt.NetworkSource{Multus: &kubevirt.MultusNetwork{NetworkName: "one"}}}}
	})
	g.reconcile()
	p := g.onePod()
	g.bind(p, "node1")
	g.state(p, running)
	for _, tt := range []struct {
		network  string
		required bool
	}{{"one", false}, {"two", true}, {"one", false}} {
		fakecluster.Change(t, g.Cluster, g.vmi(), func(vmi *kubevirt.VirtualMachineInstance) { vmi.Spec.Networks[1].Multus.NetworkName = tt.network })
		g.reconcile()
		c := g.condition(kubevirt.VirtualMachineInstanceMigrationRequired)
		if (c != nil) != tt.required || c != nil && (c.Status != corev1.ConditionTrue || c.Reason != kubevirt.VirtualMachineInstanceReasonAutoMigrationDueToLiveUpdate) {
			t.Errorf("network %s: %+v", tt.network, c)
		}
	}
}

// TestNoMigrationRequired: a running instance says that the card that it is about to get needs no migration.
func TestNoMigrationRequired(t *testing.T) {
	g := newRig(t)
	lan := func(name string) kubevirt.Network {
		return kubevirt.Network{Name: name, NetworkSource: kubevirt.NetworkSource{Multus: &kubevirt.MultusNetwork{NetworkName: name}}}
	}
	g.add(func(vmi *kubevirt.VirtualMachineInstance) {
		vmi.Spec.Domain.Devices.Interfaces = []kubevirt.Interface{{Name: "one"}, {Name: "two"}}
		vmi.Spec.Networks = []kubevirt.Network{lan("one"), lan("two")}
	})
	g.reconcile()
	p := g.onePod()
	g.bind(p, "node1")
	g.state(p, running)
	required := func() *kubevirt.VirtualMachineInstanceCondition {
		g.reconcile()
		return g.condition(kubevirt.VirtualMachineInstanceMigrationRequired)
	}
	assert.Assert(t, required() == nil)
	// It loses the first card, whose place the second one does not take.
	fakecluster.Change(t, g.Cluster, g.vmi(), func(vmi *kubevirt.VirtualMachineInstance) {
		vmi.Spec.Domain.Devices.Interfaces = []kubevirt.Interface{{Name: "two"}, {Name: "late"}}
		vmi.Spec.Networks = []kubevirt.Network{lan("two"), lan("late")}
	})
	fakecluster.Change(t, g.Cluster, g.onePod(), func(p *corev1.Pod) { pod.SetLost(p, "one") })
	c := required()
	assert.Assert(t, c != nil && c.Status == corev1.ConditionFalse && c.Reason == kubevirt.VirtualMachineInstanceReasonAutoMigrationPending, "%+v", c)
	fakecluster.Change(t, g.Cluster, g.onePod(), func(p *corev1.Pod) {
		assert.NilError(t, pod.SetPluggedCards(p, []pod.PluggedCard{{Name: "late", Container: "c"}}))
	})
	assert.Assert(t, required() == nil)
}
