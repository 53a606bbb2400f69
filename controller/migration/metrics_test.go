package migration

import (
	"context"
	"fmt"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"
	kubevirt "kubevirt.io/api/core/v1"

	"github.com/nodevirt/nodevirt/test/fakecluster"
)

// TestMetrics: migrations are counted by KubeVirt's phases.
func TestMetrics(t *testing.T) {
	g := newRig(t)
	registry := prometheus.NewPedanticRegistry()
	registry.MustRegister(newMeasures(g.Cached(), registry))
	g.migrate()
	for phase, in := range map[kubevirt.VirtualMachineInstanceMigrationPhase]string{
		kubevirt.MigrationPhaseUnset: "unset", kubevirt.MigrationPending: "pending", kubevirt.MigrationScheduling: "scheduling",
		kubevirt.MigrationScheduled: "running", kubevirt.MigrationTargetReady: "running", kubevirt.MigrationRunning: "running",
		kubevirt.MigrationSucceeded: "succeeded", kubevirt.MigrationFailed: "failed",
	} {
		fakecluster.Change(t, g.Cluster, g.migration(), func(m *migration) { m.Status.Phase = phase })
		want := map[string]float64{}
		for _, of := range []string{"unset", "pending", "scheduling", "running"} {
			want["kubevirt_vmi_migrations_in_"+of+"_phase"] = 0
		}
		if name := "kubevirt_vmi_migrations_in_" + in + "_phase"; phase == kubevirt.MigrationSucceeded || phase == kubevirt.MigrationFailed {
			want["kubevirt_vmi_migration_"+in+" namespace=default vmi=web vmim=move"] = 1
		} else {
			want[name] = 1
		}
		if diff := cmp.Diff(want, gathered(t, registry)); diff != "" {
			t.Errorf("%s (-want +got):\n%s", phase, diff)
		}
	}
}

// TestMetricsOfALeader: a controller reports while it leads, and only one in a process.
func TestMetricsOfALeader(t *testing.T) {
	g := newRig(t)
	registry := prometheus.NewPedanticRegistry()
	first, second := newMeasures(g.Cached(), registry), newMeasures(g.Cached(), registry)
	registry.MustRegister(first)
	if err := second.Start(t.Context()); err != nil || len(gathered(t, registry)) != 4 {
		t.Errorf("a second controller: %v", err)
	}
	registry.Unregister(first)
	ctx, stop := context.WithCancel(t.Context())
	stop()
	if err := second.Start(ctx); err != nil || len(gathered(t, registry)) != 0 {
		t.Errorf("after its end: %v, %v", err, gathered(t, registry))
	}
}

func gathered(t *testing.T, registry *prometheus.Registry) map[string]float64 {
	t.Helper()
	all, err := registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	got := map[string]float64{}
	for _, family := range all {
		for _, m := range family.GetMetric() {
			name := family.GetName()
			for _, l := range m.GetLabel() {
				name += fmt.Sprintf(" %s=%s", l.GetName(), l.GetValue())
			}
			got[name] = m.GetGauge().GetValue()
		}
	}
	return got
}
