package vmi

import (
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	kubevirt "kubevirt.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/nodevirt/nodevirt/controller/pod"
	"github.com/nodevirt/nodevirt/shim/podstatus/condition"
	"github.com/nodevirt/nodevirt/shim/vm/hotplug/order"
	"github.com/nodevirt/nodevirt/test/fakecluster"
)

// TestEvictions: with the strategy External an eviction changes the instance's status
// alone; other pods may be evicted.
func TestEvictions(t *testing.T) {
	for strategy, want := range map[kubevirt.EvictionStrategy]string{
		kubevirt.EvictionStrategyNone: "", kubevirt.EvictionStrategyExternal: `Eviction triggered evacuation of VMI "default/web"`,
	} {
		g := newRig(t)
		g.add(func(vmi *kubevirt.VirtualMachineInstance) { vmi.Spec.EvictionStrategy = &strategy })
		g.reconcile()
		p := g.pods()[0]
		p.Spec.NodeName = "node1"
		if err := g.Update(t.Context(), &p); err != nil {
			t.Fatal(err)
		}
		e, key := Evictions{Live: g.Client}, types.NamespacedName{Namespace: p.Namespace, Name: p.Name}
		for _, step := range []struct {
			dryRun bool
			want   string
		}{{true, want}, {false, want}, {false, strings.Replace(want, "Eviction t", "Evacuation in progress: Eviction t", 1)}} {
			if got, err := e.Refuse(t.Context(), key, step.dryRun); err != nil || got != step.want {
				t.Errorf("%s, dry run %t: %q, %v; want %q", strategy, step.dryRun, got, err, step.want)
			}
		}
		if got := g.vmi().Status.EvacuationNodeName; (got == "node1") != (want != "") {
			t.Errorf("%s: the instance should leave node %q", strategy, got)
		}
		g.reconcile()
		if got := g.vmi().Status.EvacuationNodeName; (got == "node1") != (want != "") {
			t.Errorf("%s: after the next step the instance should leave node %q", strategy, got)
		}
		if got, err := e.Refuse(t.Context(), types.NamespacedName{Namespace: "default", Name: "gone"}, false); got != "" || err != nil {
			t.Errorf("a pod that is gone: %q, %v", got, err)
		}
	}
}

// TestEvictionOfAPausedGuest: a drain says what keeps a VM on its node, also if its user has paused the guest after the drain
// began.
func TestEvictionOfAPausedGuest(t *testing.T) {
	for _, evacuating := range []bool{false, true} {
		g := newRig(t)
		g.add(func(vmi *kubevirt.VirtualMachineInstance) {
			vmi.Spec.EvictionStrategy = new(kubevirt.EvictionStrategyLiveMigrate)
			vmi.Spec.Networks = []kubevirt.Network{*kubevirt.DefaultPodNetwork()}
			vmi.Spec.Domain.Devices.Interfaces = []kubevirt.Interface{{
				Name: "default", InterfaceBindingMethod: kubevirt.InterfaceBindingMethod{Masquerade: new(kubevirt.InterfaceMasquerade)},
			}}
		})
		g.reconcile()
		p := g.onePod()
		g.bind(p, "node1")
		g.state(p, running)
		g.reconcile()
		e, key := Evictions{Live: g.Client}, types.NamespacedName{Namespace: p.Namespace, Name: p.Name}
		if evacuating {
			if got, err := e.Refuse(t.Context(), key, false); err != nil || !strings.Contains(got, "triggered evacuation") {
				t.Fatalf("%q, %v", got, err)
			}
		}
		fakecluster.Change(t, g.Cluster, p, func(p *corev1.Pod) {
			p.Status.Conditions = append(p.Status.Conditions, corev1.PodCondition{
				Type: condition.Paused, Status: corev1.ConditionTrue, Reason: condition.ReasonPausedByUser,
			})
		})
		g.reconcile()
		if got, err := e.Refuse(t.Context(), key, false); err != nil || !strings.HasSuffix(got, "unpause it first") {
			t.Errorf("evacuating %t: %q, %v", evacuating, got, err)
		}
	}
}

// TestEvictionsByMigration: an instance that can be migrated stays until a migration has
// moved it. Another one stays too, or is evicted, as its strategy says.
func TestEvictionsByMigration(t *testing.T) {
	const evacuates = `Eviction triggered evacuation of VMI "default/web"`
	for _, tt := range []struct {
		strategy kubevirt.EvictionStrategy
		able     bool
		want     string
	}{
		{kubevirt.EvictionStrategyLiveMigrate, true, evacuates},
		{kubevirt.EvictionStrategyLiveMigrate, false, "VMI web is configured with an eviction strategy but is not live-migratable: cannot migrate VMI which does not use masquerade to connect to the pod network"},
		{kubevirt.EvictionStrategyLiveMigrateIfPossible, true, evacuates},
		{kubevirt.EvictionStrategyLiveMigrateIfPossible, false, ""},
	} {
		g := newRig(t)
		g.add(func(vmi *kubevirt.VirtualMachineInstance) {
			vmi.Spec.EvictionStrategy = &tt.strategy
			if tt.able {
				vmi.Spec.Networks = []kubevirt.Network{*kubevirt.DefaultPodNetwork()}
				vmi.Spec.Domain.Devices.Interfaces = []kubevirt.Interface{{
					Name: "default", InterfaceBindingMethod: kubevirt.InterfaceBindingMethod{Masquerade: new(kubevirt.InterfaceMasquerade)},
				}}
			}
		})
		g.reconcile()
		p := g.onePod()
		g.bind(p, "node1")
		g.state(p, running)
		g.reconcile()
		e, key := Evictions{Live: g.Client}, types.NamespacedName{Namespace: p.Namespace, Name: p.Name}
		if got, err := e.Refuse(t.Context(), key, false); err != nil || got != tt.want {
			t.Errorf("%s, migratable %t: %q, %v; want %q", tt.strategy, tt.able, got, err, tt.want)
		}
		attachment := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{
			Namespace: p.Namespace, Name: "hp-volume-data", Labels: map[string]string{kubevirt.AppLabel: pod.AttachmentLabelValue},
			Annotations:     map[string]string{order.Annotation: string(p.UID), kubevirt.DomainAnnotation: "web"},
			OwnerReferences: []metav1.OwnerReference{{Kind: "Pod", Name: p.Name, UID: p.UID, Controller: new(true)}},
		}}
		g.Add(t, attachment)
		again := strings.Replace(tt.want, "Eviction t", "Evacuation in progress: Eviction t", 1)
		if got, err := e.Refuse(t.Context(), client.ObjectKeyFromObject(attachment), true); err != nil || got != again {
			t.Errorf("%s, migratable %t, an attachment pod: %q, %v; want %q", tt.strategy, tt.able, got, err, again)
		}
		former := attachment.DeepCopy()
		former.Name, former.ResourceVersion, former.Annotations[order.Annotation] = "hp-volume-former", "", "former"
		g.Add(t, former)
		if got, err := e.Refuse(t.Context(), client.ObjectKeyFromObject(former), true); err != nil || got != "" {
			t.Errorf("an attachment pod of a former pod: %q, %v", got, err)
		}
		if got := g.vmi().Status.EvacuationNodeName; (got == "node1") != (tt.want == evacuates) {
			t.Errorf("%s, migratable %t: it should leave node %q", tt.strategy, tt.able, got)
		}
	}
}
