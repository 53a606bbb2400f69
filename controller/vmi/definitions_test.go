package vmi

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"gotest.tools/v3/assert"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	kubevirt "kubevirt.io/api/core/v1"

	"github.com/nodevirt/nodevirt/controller/pod"
	"github.com/nodevirt/nodevirt/shim/migrate/order"
	"github.com/nodevirt/nodevirt/shim/podstatus/condition"
)

// Configurations of networks: one plug-in, and chains.
const (
	hostLocal   = `{"cniVersion": "1.0.0", "type": "bridge", "bridge": "lan", "ipam": {"type": "host-local", "subnet": "10.1.0.0/24"}}`
	whereabouts = `{"plugins": [{"type": "bridge", "ipam": {"type": "whereabouts", "range": "10.1.0.0/24"}}, {"type": "tuning"}]}`
	onRequest   = `{"plugins": [{"type": "bridge", "capabilities": {"ips": true}, "ipam": {"type": "host-local", "subnet": "10.1.0.0/24"}}]}`
	static      = `{"type": "bridge", "ipam": {"type": "static", "addresses": [{"address": "10.1.0.9/24"}]}}`
	free        = `{"type": "bridge", "ipam": {}}`
	layer2      = `{"cniVersion": "0.3.1", "type": "ovn-k8s-cni-overlay", "topology": "layer2", "name": "lan", "netAttachDefName": "default/lan"`
	ovnNoIPAM   = layer2 + `}`
	ovnOwn      = layer2 + `, "subnets": "10.1.0.0/24"}`
	ovnClaims   = layer2 + `, "subnets": "10.1.0.0/24", "allowPersistentIPs": true}`
)

// define makes a network of Multus with a configuration.
func (g *rig) define(name, config string) {
	g.t.Helper()
	n := &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "k8s.cni.cncf.io/v1", "kind": "NetworkAttachmentDefinition", "spec": map[string]any{"config": config},
	}}
	n.SetNamespace(web.Namespace)
	n.SetName(name)
	g.Add(g.t, n)
}

// onNetwork is an instance with a card on a network of Multus.
func onNetwork(name string, method kubevirt.InterfaceBindingMethod) *kubevirt.VirtualMachineInstance {
	vmi := &kubevirt.VirtualMachineInstance{ObjectMeta: metav1.ObjectMeta{Namespace: web.Namespace, Name: web.Name}}
	vmi.Spec.Networks = []kubevirt.Network{
		*kubevirt.DefaultPodNetwork(),
		{Name: "lan", NetworkSource: kubevirt.NetworkSource{Multus: &kubevirt.MultusNetwork{NetworkName: name}}},
	}
	vmi.Spec.Domain.Devices.Interfaces = []kubevirt.Interface{
		{Name: "default", InterfaceBindingMethod: kubevirt.InterfaceBindingMethod{Masquerade: new(kubevirt.InterfaceMasquerade)}},
		{Name: "lan", InterfaceBindingMethod: method},
	}
	return vmi
}

// TestOwnAddress: a network that gives each pod a separate address is known from its definition, before the first migration.
func TestOwnAddress(t *testing.T) {
	bridge := kubevirt.InterfaceBindingMethod{Bridge: new(kubevirt.InterfaceBridge)}
	for name, tt := range map[string]struct {
		config string
		method kubevirt.InterfaceBindingMethod
		want   string
	}{
		"host-local":            {hostLocal, bridge, "IPAM host-local"},
		"whereabouts":           {whereabouts, bridge, "IPAM whereabouts"},
		"OVN, no IPAM":          {ovnNoIPAM, bridge, ""},
		"OVN":                   {ovnOwn, bridge, "ovn-k8s-cni-overlay without allowPersistentIPs"},
		"OVN, persistent IPs":   {ovnClaims, bridge, ""},
		"addresses on request":  {onRequest, bridge, ""},
		"the same address":      {static, bridge, ""},
		"no addresses":          {free, bridge, ""},
		"no configuration":      {"", bridge, ""},
		"a device of the node":  {hostLocal, kubevirt.InterfaceBindingMethod{SRIOV: new(kubevirt.InterfaceSRIOV)}, ""},
		"text that is not JSON": {"{", bridge, ""},
	} {
		t.Run(name, func(t *testing.T) {
			g := newRig(t)
			g.define("lan", tt.config)
			vmi := onNetwork("lan", tt.method)
			why, err := g.r.Pods.networks.ownAddress(t.Context(), vmi)
			assert.NilError(t, err)
			if (why == "") != (tt.want == "") || !strings.Contains(why, tt.want) {
				t.Errorf("%q, want %q", why, tt.want)
			}
			v := seen(readyNode, corev1.PodRunning, running)
			v.ownAddress = why
			if c := migratable(vmi, v); tt.want != "" && (c.Status != corev1.ConditionFalse || c.Reason != kubevirt.VirtualMachineInstanceReasonInterfaceNotMigratable) {
				t.Errorf("%+v", c)
			}
		})
	}
}

// TestMissingNetwork finds the network that does not exist, also after it was deleted.
func TestMissingNetwork(t *testing.T) {
	g := newRig(t)
	vmi := onNetwork("lan", kubevirt.InterfaceBindingMethod{Bridge: new(kubevirt.InterfaceBridge)})
	name, err := g.r.Pods.MissingNetwork(t.Context(), vmi)
	assert.NilError(t, err)
	assert.Equal(t, name, "lan")
	g.define("lan", free)
	name, err = g.r.Pods.MissingNetwork(t.Context(), vmi)
	assert.NilError(t, err)
	assert.Equal(t, name, "")
}

// TestKeepAddresses: the target of a migration asks for the source's addresses where the network gives them on request, and
// for nothing that is no address.
func TestKeepAddresses(t *testing.T) {
	for config, want := range map[string]string{onRequest: "[10.1.0.7 fd00::7]", hostLocal: "[]", free: "[]"} {
		g := newRig(t)
		g.define("lan", config)
		vmi := onNetwork("lan", kubevirt.InterfaceBindingMethod{Bridge: new(kubevirt.InterfaceBridge)})
		source := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Annotations: map[string]string{
			AnnotationNetworkStatus: `[{"interface": "eth0", "ips": ["10.0.0.1"]}, {"interface": "net1", "ips": ["10.1.0.7", "fd00::7", "$(id)"]}]`,
		}}}
		target := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Annotations: map[string]string{
			pod.AnnotationNetworks: `[{"name": "lan", "interface": "net1"}]`,
		}}}
		assert.NilError(t, g.r.Pods.KeepAddresses(t.Context(), vmi, target, source))
		var asked []struct {
			IPs []string `json:"ips"`
		}
		assert.NilError(t, json.Unmarshal([]byte(target.Annotations[pod.AnnotationNetworks]), &asked))
		assert.Equal(t, fmt.Sprint(asked[0].IPs), want)
	}
}

// TestKeepClaims: the target of a migration names the IPAMClaims that KubeVirt's IPAM extension gave the source's pod, each on
// its interface and network.
func TestKeepClaims(t *testing.T) {
	g := newRig(t)
	g.define("lan", ovnClaims)
	const primary = "k8s.ovn.org/primary-udn-ipamclaim"
	vmi := onNetwork("lan", kubevirt.InterfaceBindingMethod{Bridge: new(kubevirt.InterfaceBridge)})
	source := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Annotations: map[string]string{
		pod.AnnotationNetworks: `[{"name": "lan", "namespace": "default", "interface": "net1", "ipam-claim-reference": "web.lan"}, {"name": "old", "interface": "net2", "ipam-claim-reference": "web.old"}]`,
		primary:                "web.default",
	}}}
	target := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Annotations: map[string]string{
		pod.AnnotationNetworks: `[{"name":"lan","interface":"net1"},{"name":"new","interface":"net2"}]`,
	}}}
	assert.NilError(t, g.r.Pods.KeepAddresses(t.Context(), vmi, target, source))
	assert.Equal(t, target.Annotations[pod.AnnotationNetworks], `[{"name":"lan","interface":"net1","ipam-claim-reference":"web.lan"},{"name":"new","interface":"net2"}]`)
	assert.Equal(t, target.Annotations[primary], "web.default")
	delete(source.Annotations, pod.AnnotationNetworks) // a source without networks changes nothing
	assert.NilError(t, g.r.Pods.KeepAddresses(t.Context(), vmi, target, source))
}

// TestRefusedMoves: a VM whose last migration was refused for its addresses, and a guest that a user has paused, do not migrate.
func TestRefusedMoves(t *testing.T) {
	refused := func(vmi *kubevirt.VirtualMachineInstance, source string) {
		vmi.Status.MigrationState = &kubevirt.VirtualMachineInstanceMigrationState{
			MigrationUID: "m", Failed: true, EndTimestamp: new(metav1.Now()), SourcePod: source,
			FailureReason: `network card "lan" has the addresses a here and b on the source: ` + order.OtherAddresses,
		}
	}
	paused := func(v *view, reason string) {
		v.pod.Status.Conditions = append(v.pod.Status.Conditions, corev1.PodCondition{
			Type: condition.Paused, Status: corev1.ConditionTrue, Reason: reason,
		})
	}
	for name, tt := range map[string]struct {
		change func(*kubevirt.VirtualMachineInstance, *view)
		want   string
	}{
		"nothing":                {func(*kubevirt.VirtualMachineInstance, *view) {}, ""},
		"other addresses":        {func(vmi *kubevirt.VirtualMachineInstance, v *view) { refused(vmi, v.pod.Name) }, order.OtherAddresses},
		"a pod before that":      {func(vmi *kubevirt.VirtualMachineInstance, _ *view) { refused(vmi, "former") }, ""},
		"paused by a user":       {func(_ *kubevirt.VirtualMachineInstance, v *view) { paused(v, condition.ReasonPausedByUser) }, "unpause it first"},
		"paused by an I/O error": {func(_ *kubevirt.VirtualMachineInstance, v *view) { paused(v, condition.ReasonPausedIOError) }, ""},
		"paused by its migration": {func(vmi *kubevirt.VirtualMachineInstance, v *view) {
			paused(v, condition.ReasonPausedByUser)
			vmi.Status.MigrationState = &kubevirt.VirtualMachineInstanceMigrationState{MigrationUID: "m"}
		}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			vmi := onNetwork("lan", kubevirt.InterfaceBindingMethod{Bridge: new(kubevirt.InterfaceBridge)})
			v := seen(readyNode, corev1.PodRunning, running)
			tt.change(vmi, &v)
			c := migratable(vmi, v)
			if (c.Status == corev1.ConditionTrue) != (tt.want == "") || !strings.Contains(c.Message, tt.want) {
				t.Errorf("%+v", c)
			}
		})
	}
}
