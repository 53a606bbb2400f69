package migrationpolicy

import (
	"cmp"
	"slices"

	"k8s.io/apimachinery/pkg/labels"
	kubevirt "kubevirt.io/api/core/v1"
	migrations "kubevirt.io/api/migrations/v1alpha1"
)

// Match returns the policy for an instance with some labels in a namespace with some labels;
// nil for none. As in KubeVirt, the one whose selectors have the most labels wins, among
// equals the one with more labels of the instance, and then the first name.
func Match(all []migrations.MigrationPolicy, instance, namespace labels.Set) *migrations.MigrationPolicy {
	var matching []*migrations.MigrationPolicy
	for i := range all {
		s := all[i].Spec.Selectors
		if s != nil && has(instance, s.VirtualMachineInstanceSelector) && has(namespace, s.NamespaceSelector) {
			matching = append(matching, &all[i])
		}
	}
	if len(matching) == 0 {
		return nil
	}
	return slices.MinFunc(matching, func(a, b *migrations.MigrationPolicy) int {
		left, right := a.Spec.Selectors, b.Spec.Selectors
		return cmp.Or(
			cmp.Compare(count(right), count(left)),
			cmp.Compare(len(right.VirtualMachineInstanceSelector), len(left.VirtualMachineInstanceSelector)),
			cmp.Compare(a.Name, b.Name),
		)
	})
}

func has(of labels.Set, wanted migrations.LabelSelector) bool {
	return labels.SelectorFromSet(labels.Set(wanted)).Matches(of)
}

func count(s *migrations.Selectors) int {
	return len(s.VirtualMachineInstanceSelector) + len(s.NamespaceSelector)
}

// Configure returns the configuration of a migration with a policy, nil for none, in a cluster with this
// configuration, which has all that a migration reads.
func Configure(p *migrations.MigrationPolicy, cluster kubevirt.MigrationConfiguration) *kubevirt.VMIMConfigurationOptions {
	c := &kubevirt.VMIMConfigurationOptions{
		ParallelMigrationsPerCluster:      cluster.ParallelMigrationsPerCluster,
		ParallelOutboundMigrationsPerNode: cluster.ParallelOutboundMigrationsPerNode,
		AllowAutoConverge:                 cluster.AllowAutoConverge,
		AllowPostCopy:                     new(false),
		AllowWorkloadDisruption:           cluster.AllowWorkloadDisruption,
		BandwidthPerMigration:             cluster.BandwidthPerMigration,
		CompletionTimeoutPerGiB:           cluster.CompletionTimeoutPerGiB,
		ProgressTimeout:                   cluster.ProgressTimeout,
	}
	if p == nil {
		return c.DeepCopy()
	}
	if v := p.Spec.AllowAutoConverge; v != nil {
		c.AllowAutoConverge = v
	}
	if v := p.Spec.AllowWorkloadDisruption; v != nil {
		c.AllowWorkloadDisruption = v
	}
	if v := p.Spec.BandwidthPerMigration; v != nil {
		c.BandwidthPerMigration = v
	}
	if v := p.Spec.CompletionTimeoutPerGiB; v != nil {
		c.CompletionTimeoutPerGiB = v
	}
	return c.DeepCopy()
}
