package migration

import (
	"fmt"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	kubevirt "kubevirt.io/api/core/v1"
)

// queue returns migrations that run from nodes, and pending ones.
func queue(running, pending []string) ([]migration, func(*migration) string) {
	var all []migration
	nodes := map[types.UID]string{}
	add := func(change func(*migration)) {
		m := migration{ObjectMeta: metav1.ObjectMeta{
			UID: types.UID(fmt.Sprint(len(all))), CreationTimestamp: metav1.NewTime(time.Unix(int64(len(all)), 0)),
		}}
		change(&m)
		all = append(all, m)
	}
	for _, node := range running {
		add(func(m *migration) {
			m.Status.Phase, m.Status.MigrationState = kubevirt.MigrationRunning, &state{SourceNode: node}
		})
	}
	for _, p := range pending {
		node, priority, _ := strings.Cut(p, ":")
		add(func(m *migration) {
			if nodes[m.UID] = node; priority != "" {
				of := kubevirt.MigrationPriority(priority)
				m.Spec.Priority = &of
			}
		})
	}
	return all, func(m *migration) string { return nodes[m.UID] }
}

// TestWaitsForTheGuest: a migration of an instance whose guest does not run yet is pending, and begins when it does.
func TestWaitsForTheGuest(t *testing.T) {
	g := newRig(t)
	p := g.starting()
	g.migrate()
	g.reconcile()
	if phase := g.migration().Status.Phase; phase != kubevirt.MigrationPending {
		t.Fatalf("before the guest runs: %s", phase)
	}
	g.boot(p, "node1", "10.0.0.1")
	g.reconcile() // the instance runs
	g.reconcile()
	if g.migration().Status.Phase == kubevirt.MigrationPending || g.target() == nil {
		t.Errorf("once it runs: %+v, target %v", g.migration().Status, g.target())
	}
}
