//go:build cluster && examples

package cluster

import (
	"context"
	"path/filepath"
	"testing"

	"gotest.tools/v3/assert"
)

// TestKubeVirtsMigrationExamples runs KubeVirt's examples of migrations, unchanged: the guest of vmi-migratable moves by
// migration-job, and by the policy once it has the labels that example-migration-policy selects.
func TestKubeVirtsMigrationExamples(t *testing.T) {
	if *kubevirtExamples == "" {
		t.Fatal("missing flag: -kubevirt-examples FOLDER")
	}
	assert.NilError(t, pushKubeVirtsDisks(t.Context()))
	example := func(name string) *manifest {
		t.Helper()
		m, err := readManifest(filepath.Join(*kubevirtExamples, name+".yaml"))
		assert.NilError(t, err)
		t.Cleanup(func() { m.delete(t) })
		m.apply(t)
		assert.Equal(t, m.refusal, "")
		return m
	}
	policy, vmi := example("example-migration-policy"), example("vmi-migratable")
	vmi.run(t)
	assert.Equal(t, vmi.runs, "")
	undo(t, func(ctx context.Context) error {
		_, err := suite.Kubectl(ctx, "label", "namespace", "default", "namespace-key-")
		return err
	})
	kubectl(t, "label", "namespace", "default", "namespace-key=namespace-value")
	kubectl(t, "label", "vmi", vmi.name, "vmi-key=vmi-value")
	assert.NilError(t, suite.WaitFor(t.Context(), "vmi/"+vmi.name, "condition=LiveMigratable"))
	boot, at := answerOf(t, vmi.name, ""), vmiField(t, vmi.name, ".status.nodeName")

	job := example("migration-job")
	assert.NilError(t, suite.WaitFor(t.Context(), "vmim/"+job.name, "jsonpath={.status.phase}=Succeeded"))
	assert.Equal(t, answerOf(t, vmi.name, ""), boot, "the guest booted again")
	if now := vmiField(t, vmi.name, ".status.nodeName"); now == at {
		t.Errorf("the guest is on %s as before", now)
	}
	assert.Equal(t, vmiField(t, vmi.name, ".status.migrationState.migrationPolicyName"), policy.name)
	assert.Equal(t, vmiField(t, vmi.name, ".status.migrationState.migrationConfiguration.bandwidthPerMigration"), "2000Mi")
}
