// Package config has what a cluster's administrator chose for nodevirt: the flags of the controller, and above
// them the configuration of the KubeVirt object. Other packages read a [Config] when they need it, so that a
// change of the object needs no restart. The package leaves to package installation which fields the object may
// have, and to the readers what a value means.
package config

import (
	"slices"
	"strconv"

	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	kubevirt "kubevirt.io/api/core/v1"

	"github.com/nodevirt/nodevirt/controller/manifest"
)

// Name is the name of the KubeVirt object that the controller honours, in the controller's namespace.
const Name = "kubevirt"

// AnnotationSkipBackupHooks of an instance, or of the KubeVirt object for those that do not say it, says by a true that
// tools which back up PVCs shall not freeze guests.
const AnnotationSkipBackupHooks = "kubevirt.io/skip-backup-hooks"

// APIVersion is the version of KubeVirt whose API this is.
const APIVersion = "v1.9.0"

// Flags are what the controller's flags say. A field of the KubeVirt object wins.
type Flags struct {
	// Gates are what instances may have in this cluster.
	Gates manifest.Gates
	// StateClass is the storage class of PVCs with VMs' persistent state; empty for the cluster's default.
	StateClass string
	// StateShared has several nodes mount these PVCs, so that migrations keep them.
	StateShared bool
}

// Config is the configuration at one moment. The zero value has KubeVirt's defaults.
type Config struct {
	Flags Flags
	// Object is the name of the KubeVirt object that the controller honours; empty for none.
	Object types.NamespacedName
	// Given is what that object says.
	Given kubevirt.KubeVirtConfiguration
	// SkipsBackupHooks is the object's value of [AnnotationSkipBackupHooks].
	SkipsBackupHooks string
	// Updates says how running VMs get what they can't get on their nodes.
	Updates []kubevirt.WorkloadUpdateMethod
}

// The defaults are KubeVirt's.
const (
	defaultAllocationRatio = 10  // vCPUs for each processor that a pod requests
	defaultOvercommit      = 100 // percent

	maxInCluster    = 5
	maxFromNode     = 2
	defaultPerGiB   = 150 // seconds
	defaultProgress = 150 // seconds
	defaultDrain    = "kubevirt.io/drain"
)

func (c Config) developer() kubevirt.DeveloperConfiguration {
	if d := c.Given.DeveloperConfiguration; d != nil {
		return *d
	}
	return kubevirt.DeveloperConfiguration{}
}

// Emulates reports whether nodes without KVM may run guests.
func (c Config) Emulates() bool { return c.developer().UseEmulation }

// OverheadRatio returns the factor by which QEMU's needs beside the guest's memory count.
func (c Config) OverheadRatio() float64 {
	if text := c.Given.AdditionalGuestMemoryOverheadRatio; text != nil {
		if ratio, err := strconv.ParseFloat(*text, 64); err == nil { // package installation has checked it
			return ratio
		}
	}
	return 1
}

// StateClass returns the storage class of PVCs with VMs' persistent state; "" for the cluster's default.
func (c Config) StateClass() string {
	if class := c.Given.VMStateStorageClass; class != "" {
		return class
	}
	return c.Flags.StateClass
}

// ReferencePolicy returns how VMs refer to their instance types and preferences.
func (c Config) ReferencePolicy() kubevirt.InstancetypeReferencePolicy {
	if i := c.Given.Instancetype; i != nil && i.ReferencePolicy != nil && *i.ReferencePolicy != "" {
		return *i.ReferencePolicy
	}
	return kubevirt.Reference
}

// EvictionStrategy returns the strategy of an instance, or else the cluster's.
func (c Config) EvictionStrategy(vmi *kubevirt.VirtualMachineInstance) kubevirt.EvictionStrategy {
	for _, s := range []*kubevirt.EvictionStrategy{vmi.Spec.EvictionStrategy, c.Given.EvictionStrategy} {
		if s != nil && *s != "" {
			return *s
		}
	}
	return kubevirt.EvictionStrategyNone
}

// MigratesUpdated reports whether a VM migrates by itself if its instance requires a migration.
func (c Config) MigratesUpdated() bool {
	return slices.Contains(c.Updates, kubevirt.WorkloadUpdateMethodLiveMigrate)
}

// Staged reports whether a running instance keeps its vCPUs and its memory until the VM restarts, though it could
// take over what the VM's template says.
func (c Config) Staged() bool {
	s := c.Given.VMRolloutStrategy
	return s != nil && *s == kubevirt.VMRolloutStrategyStage
}

// MilliPerVCPU is what a vCPU requests of a processor, in thousandths, where the instance doesn't say.
func (c Config) MilliPerVCPU() int64 {
	if ratio := c.developer().CPUAllocationRatio; ratio > 0 {
		return max(1000/int64(ratio), 1)
	}
	return 1000 / defaultAllocationRatio
}

// MemoryRequest returns what is requested for the memory of a guest, which the domain has, where the instance doesn't
// say. Huge pages and the memory of dedicated CPUs cannot be overcommitted.
func (c Config) MemoryRequest(d *kubevirt.DomainSpec) resource.Quantity {
	guest, percent := *d.Memory.Guest, c.developer().MemoryOvercommit
	fixed := d.Memory.Hugepages != nil || d.CPU != nil && d.CPU.DedicatedCPUPlacement
	if percent <= 0 || percent == defaultOvercommit || fixed {
		return guest
	}
	bytes := float64(guest.Value()) * defaultOvercommit / float64(percent)
	return *resource.NewQuantity(int64(bytes), guest.Format)
}

// NodeSelector returns the labels of the nodes that run VMs; nil for any node.
func (c Config) NodeSelector() map[string]string { return c.developer().NodeSelectors }

// ObsoleteCPUs returns the CPU models with which no guest starts, sorted.
func (c Config) ObsoleteCPUs() []string {
	var all []string
	for model, obsolete := range c.Given.ObsoleteCPUModels {
		if obsolete {
			all = append(all, model)
		}
	}
	slices.Sort(all)
	return all
}

// LimitsCPU returns the selector of the namespaces in which a VM's pod is limited to the CPUs that the VM has;
// nil for none.
func (c Config) LimitsCPU() labels.Selector {
	given := c.Given.AutoCPULimitNamespaceLabelSelector
	if given == nil {
		return nil
	}
	s, err := metav1.LabelSelectorAsSelector(given)
	if err != nil { // admission has checked it
		return nil
	}
	return s
}

// Machine returns the type of the machine of a VM that has none; "" for nodevirt's default.
func (c Config) Machine(arch string) string {
	if a := c.architecture(arch); a != nil && a.MachineType != "" {
		return a.MachineType
	}
	if arch == amd64 {
		return c.Given.MachineType
	}
	return ""
}

// Migrations returns the options of migrations that no policy changes.
func (c Config) Migrations() kubevirt.MigrationConfiguration {
	m := kubevirt.MigrationConfiguration{}
	if given := c.Given.MigrationConfiguration; given != nil {
		m = *given.DeepCopy()
	}
	set(&m.ParallelMigrationsPerCluster, maxInCluster)
	set(&m.ParallelOutboundMigrationsPerNode, maxFromNode)
	set(&m.BandwidthPerMigration, resource.Quantity{})
	set(&m.CompletionTimeoutPerGiB, defaultPerGiB)
	set(&m.ProgressTimeout, defaultProgress)
	set(&m.AllowAutoConverge, false)
	set(&m.AllowWorkloadDisruption, false)
	set(&m.NodeDrainTaintKey, defaultDrain)
	return m
}

// set gives a field that is not set a value.
func set[T any](field **T, value T) {
	if *field == nil {
		*field = &value
	}
}

// Interface returns how a VM without interfaces is connected to the pod network.
func (c Config) Interface() kubevirt.NetworkInterfaceType {
	if n := c.Given.NetworkConfiguration; n != nil && n.NetworkInterface != "" {
		return kubevirt.NetworkInterfaceType(n.NetworkInterface)
	}
	return kubevirt.BridgeInterface
}

// Bindings returns the network binding plug-ins that are registered, by their names.
func (c Config) Bindings() map[string]kubevirt.InterfaceBindingPlugin {
	if n := c.Given.NetworkConfiguration; n != nil {
		return n.Binding
	}
	return nil
}

// BlockTracking returns the selectors of the VMs whose changed blocks are tracked: by the labels of the VM, or of
// its namespace; each nil for none.
func (c Config) BlockTracking() (vm, namespace labels.Selector) {
	given := c.Given.ChangedBlockTrackingLabelSelectors
	if given == nil {
		return nil, nil
	}
	of := func(s *metav1.LabelSelector) labels.Selector {
		selector, err := metav1.LabelSelectorAsSelector(s)
		if s == nil || err != nil { // admission has checked it
			return nil
		}
		return selector
	}
	return of(given.VirtualMachineLabelSelector), of(given.NamespaceLabelSelector)
}
