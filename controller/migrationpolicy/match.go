package migrationpolicy

import (
	"cmp"
	"slices"

	"k8s.io/apimachinery/pkg/api/resource"
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

// The defaults are KubeVirt's.
const (
	// MaxInCluster and MaxFromNode are how many migrations run at once.
	MaxInCluster = 5
	MaxFromNode  = 2

	defaultPerGiB   = 150 // seconds
	defaultProgress = 150 // seconds
)

// Configure returns the configuration of a migration with a policy; nil for none.
func Configure(p *migrations.MigrationPolicy) *kubevirt.VMIMConfigurationOptions {
	c := &kubevirt.VMIMConfigurationOptions{
		ParallelMigrationsPerCluster: new(uint32(MaxInCluster)), ParallelOutboundMigrationsPerNode: new(uint32(MaxFromNode)),
		AllowAutoConverge: new(false), AllowPostCopy: new(false), AllowWorkloadDisruption: new(false),
		BandwidthPerMigration:   new(resource.Quantity),
		CompletionTimeoutPerGiB: new(int64(defaultPerGiB)), ProgressTimeout: new(int64(defaultProgress)),
	}
	if p == nil {
		return c
	}
	if v := p.Spec.AllowAutoConverge; v != nil {
		c.AllowAutoConverge = v
	}
	if v := p.Spec.BandwidthPerMigration; v != nil {
		c.BandwidthPerMigration = v
	}
	if v := p.Spec.CompletionTimeoutPerGiB; v != nil {
		c.CompletionTimeoutPerGiB = v
	}
	return c.DeepCopy()
}
