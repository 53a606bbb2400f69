package pod

import (
	"slices"
	"strings"

	kubevirt "kubevirt.io/api/core/v1"

	"github.com/nodevirt/nodevirt/shim/vmspec"
)

// Need is a label that nodes write about themselves, and that an instance's node must have.
type Need struct {
	// Label is the label's key, Kind its prefix, and Value what the instance asks for.
	Label, Kind, Value string
	// Field is the instance's field that asks for it, and Noun what the field names.
	Field, Noun string
}

// Needs returns the labels that an instance's node must have because of a field of the instance.
func Needs(s *kubevirt.VirtualMachineInstanceSpec, around Surroundings) []Need {
	var all []Need
	for _, label := range nodeLabels(s, around) {
		for _, n := range needKinds() {
			if value, is := strings.CutPrefix(label, n.Kind); is {
				n.Label, n.Value = label, value
				all = append(all, n)
			}
		}
	}
	return all
}

// needKinds returns a need of each kind, without what an instance asks for.
func needKinds() []Need {
	return []Need{
		{Kind: kubevirt.SupportedMachineTypeLabel, Field: "spec.domain.machine.type", Noun: "machine type"},
		{Kind: kubevirt.CPUModelLabel, Field: "spec.domain.cpu.model", Noun: "CPU model"},
		{Kind: kubevirt.CPUFeatureLabel, Field: "spec.domain.cpu.features", Noun: "CPU feature"},
		{Kind: vmspec.ArchitectureLabel, Field: "spec.architecture", Noun: "architecture"},
		{Kind: kubevirt.HypervLabel, Field: "spec.domain.features.hyperv", Noun: "enlightenment"},
	}
}

// NeedLabel reports whether a node's label is of a kind that an instance's field may ask for.
func NeedLabel(key string) bool {
	return slices.ContainsFunc(needKinds(), func(n Need) bool { return strings.HasPrefix(key, n.Kind) })
}

// ObsoleteCPU reports whether the configuration of the cluster keeps an instance off all nodes, since its CPU model is
// obsolete.
func ObsoleteCPU(s *kubevirt.VirtualMachineInstanceSpec, around Surroundings) bool {
	return s.Domain.CPU != nil && around.Source == nil && slices.Contains(around.Config.ObsoleteCPUs(), s.Domain.CPU.Model)
}
