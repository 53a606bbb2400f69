//go:build cluster && slow

package nodes

import (
	"testing"
	"time"

	"gotest.tools/v3/assert"
)

// TestAMigrationPolicy: a policy that selects a VM limits how fast its guest moves, so that it can be cancelled. Without
// the policy, the guest moves at once.
func TestAMigrationPolicy(t *testing.T) {
	whole(t)
	m := newMover(t, "policed")
	policy := create(t, object{
		"apiVersion": "migrations.kubevirt.io/v1alpha1", "kind": "MigrationPolicy", "metadata": object{"name": "slow"},
		"spec": object{
			"selectors":             object{"virtualMachineInstanceSelector": object{"app": m.name}},
			"bandwidthPerMigration": "1Mi", "completionTimeoutPerGiB": 3000,
		},
	})
	migration := m.begin(t)
	waitFor(t, "vmim/"+migration, "jsonpath={.status.phase}=Running")
	const limited = 15 * time.Second // the guest has more than 15 MiB
	for end := time.Now().Add(limited); time.Now().Before(end); time.Sleep(time.Second) {
		if phase := kubectl(t, "get", "vmim", migration, "-o", "jsonpath={.status.phase}"); phase != "Running" {
			t.Fatalf("in spite of the policy, the migration is %s", phase)
		}
	}
	const state = "{.status.migrationState.migrationPolicyName} {.status.migrationState.migrationConfiguration.bandwidthPerMigration}"
	assert.Equal(t, kubectl(t, "get", "vmi", m.name, "-o", "jsonpath="+state), policy+" 1Mi")
	kubectl(t, "delete", "vmim", migration)
	settledAt(t, m.name, m.boot, m.at)

	kubectl(t, "delete", "migrationpolicy", policy)
	begun := time.Now()
	m.move(t)
	t.Logf("without the policy the guest moves within %s", time.Since(begun))
	assert.Equal(t, vmiField(t, m.name, ".status.migrationState.migrationPolicyName"), "")
	m.intact(t)
}
