package vmi

import (
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/types"
	kubevirt "kubevirt.io/api/core/v1"
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
