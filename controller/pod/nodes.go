package pod

import (
	"cmp"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	apilabels "k8s.io/apimachinery/pkg/labels"
	labelselection "k8s.io/apimachinery/pkg/selection"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
	kubevirt "kubevirt.io/api/core/v1"

	"github.com/nodevirt/nodevirt/shim/vmspec"
)

// LabelKinds returns the prefixes of the node labels that a node writes about what it
// can give a VM. A pod requires labels of a kind only if some node has labels of that kind.
func LabelKinds() []string {
	return []string{
		kubevirt.NodeSchedulable, kubevirt.CPUModelLabel, kubevirt.CPUFeatureLabel, kubevirt.SupportedMachineTypeLabel,
		kubevirt.HypervLabel, kubevirt.SupportedHostModelMigrationCPU, vmspec.ArchitectureLabel,
	}
}

// LabelKindsOf returns the kinds of a node's labels. A node that has lost [kubevirt.NodeSchedulable], as it cannot
// start VMs now, still shows by its machine types that nodes write it.
func LabelKindsOf(labels map[string]string) []string {
	return slices.DeleteFunc(LabelKinds(), func(kind string) bool {
		for key := range labels {
			if strings.HasPrefix(key, kind) || (kind == kubevirt.NodeSchedulable && strings.HasPrefix(key, kubevirt.SupportedMachineTypeLabel)) {
				return false
			}
		}
		return true
	})
}

// nodeSelector is the instance's, with the labels by which administrators choose nodes.
func nodeSelector(s *kubevirt.VirtualMachineInstanceSpec, around Surroundings) map[string]string {
	all := map[string]string{}
	if cpu := s.Domain.CPU; cpu != nil && cpu.DedicatedCPUPlacement {
		all[kubevirt.CPUManager] = "true"
		if cpu.Realtime != nil {
			all[kubevirt.RealtimeLabel] = "true"
		}
	}
	maps.Copy(all, s.NodeSelector)
	maps.Copy(all, around.Config.NodeSelector()) // an author must not escape them
	if len(all) == 0 {
		return nil
	}
	return all
}

// spread is the instance's, and requires KubeVirt's labels of nodes that can start the instance.
//
// Nodes write these labels, and change them when libvirt is away or new. A kubelet that starts checks a pod's node
// selector and node affinity again, and kills pods that no longer match, with their guests; only new kubelets spare
// pods that run. Constraints of topology spread are the scheduler's alone: a node without a constraint's label
// does not fit. As the constraint counts no pods, every node with the label does.
func spread(s *kubevirt.VirtualMachineInstanceSpec, around Surroundings) []corev1.TopologySpreadConstraint {
	all := s.TopologySpreadConstraints
	chosen := nodeSelector(s, around)
	for _, key := range nodeLabels(s, around) {
		if _, is := chosen[key]; is || slices.ContainsFunc(all, func(c corev1.TopologySpreadConstraint) bool {
			return c.TopologyKey == key && c.WhenUnsatisfiable == corev1.DoNotSchedule // may occur once
		}) {
			continue
		}
		all = append(all, corev1.TopologySpreadConstraint{MaxSkew: 1, TopologyKey: key, WhenUnsatisfiable: corev1.DoNotSchedule})
	}
	return all
}

// nodeLabels returns the labels, of those that nodes write about themselves, that an instance's node must have, sorted.
func nodeLabels(s *kubevirt.VirtualMachineInstanceSpec, around Surroundings) []string {
	all := encryption(s.Domain.LaunchSecurity)
	for kind, keys := range requirements(s, around) {
		// A guest that moves needs the CPU that it has, also if no node offers it.
		if kind == kubevirt.SupportedHostModelMigrationCPU || slices.Contains(around.LabelKinds, kind) {
			all = append(all, keys...)
		}
	}
	all = slices.DeleteFunc(all, func(key string) bool { return len(validation.IsQualifiedName(key)) > 0 })
	slices.Sort(all)
	return slices.Compact(all)
}

// affinity is the instance's, without the nodes that have a CPU feature which the instance forbids, or a CPU that is
// obsolete.
func affinity(s *kubevirt.VirtualMachineInstanceSpec, around Surroundings) *corev1.Affinity {
	var without []corev1.NodeSelectorRequirement
	for _, key := range unwanted(s, around) {
		if len(validation.IsQualifiedName(key)) == 0 {
			without = append(without, corev1.NodeSelectorRequirement{Key: key, Operator: corev1.NodeSelectorOpDoesNotExist})
		}
	}
	all := s.Affinity.DeepCopy()
	if len(without) == 0 {
		return all
	}
	if all == nil {
		all = new(corev1.Affinity)
	}
	if all.NodeAffinity == nil {
		all.NodeAffinity = new(corev1.NodeAffinity)
	}
	required := &all.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution
	if *required == nil {
		*required = &corev1.NodeSelector{NodeSelectorTerms: []corev1.NodeSelectorTerm{{}}}
	}
	terms := (*required).NodeSelectorTerms // a node needs to match one of them
	for i := range terms {
		terms[i].MatchExpressions = append(terms[i].MatchExpressions, without...)
	}
	return all
}

// unwanted returns the labels of nodes that can't have an instance. A guest that moves keeps its CPU, which may be
// obsolete.
func unwanted(s *kubevirt.VirtualMachineInstanceSpec, around Surroundings) []string {
	cpu, obsolete := s.Domain.CPU, around.Config.ObsoleteCPUs()
	if cpu == nil {
		return nil
	}
	var all []string
	for _, f := range cpu.Features {
		if f.Policy == "forbid" {
			all = append(all, kubevirt.CPUFeatureLabel+f.Name)
		}
	}
	for _, model := range obsolete {
		switch {
		case cpu.Model == kubevirt.CPUModeHostModel && around.Source == nil:
			all = append(all, kubevirt.HostModelCPULabel+model)
		case cpu.Model == model:
			all = append(all, kubevirt.CPUModelLabel+model)
		}
	}
	return all
}

// CPULabels returns those labels that a pod's node needs for the CPU of a guest that moves with the CPU of its node,
// as a selector; an empty one for another guest.
func CPULabels(p *corev1.Pod) apilabels.Selector {
	needs, moves := apilabels.NewSelector(), false
	for _, c := range p.Spec.TopologySpreadConstraints {
		isModel := strings.HasPrefix(c.TopologyKey, kubevirt.SupportedHostModelMigrationCPU)
		if !isModel && !strings.HasPrefix(c.TopologyKey, kubevirt.CPUFeatureLabel) {
			continue
		}
		if r, err := apilabels.NewRequirement(c.TopologyKey, labelselection.Exists, nil); err == nil {
			needs, moves = needs.Add(*r), moves || isModel
		}
	}
	if moves {
		return needs
	}
	return apilabels.Everything()
}

// encryption returns the labels of nodes that can encrypt a guest's memory so. As with KubeVirt, SEV-SNP
// requires SEV too.
func encryption(l *kubevirt.LaunchSecurity) []string {
	switch {
	case l == nil:
		return nil
	case l.SNP != nil:
		return []string{kubevirt.SEVLabel, kubevirt.SEVSNPLabel}
	case l.TDX != nil:
		return []string{kubevirt.TDXLabel}
	case l.SEV != nil && l.SEV.Policy != nil && l.SEV.Policy.EncryptedState != nil && *l.SEV.Policy.EncryptedState:
		return []string{kubevirt.SEVLabel, kubevirt.SEVESLabel}
	case l.SEV != nil:
		return []string{kubevirt.SEVLabel}
	}
	return nil
}

// requirements returns the labels that an instance requires, by their kinds. A cluster whose
// nodes have no enlightenments, as they emulate, gives none: a guest does without.
func requirements(s *kubevirt.VirtualMachineInstanceSpec, around Surroundings) map[string][]string {
	vm, _ := vmspec.Preview(field.NewPath("spec"), s)
	all := map[string][]string{kubevirt.NodeSchedulable: {kubevirt.NodeSchedulable}}
	switch vm.CPU.Model {
	case "", "maximum", kubevirt.CPUModeHostPassthrough:
	case kubevirt.CPUModeHostModel:
		hostModel(all, around.Source)
	default:
		all[kubevirt.CPUModelLabel] = []string{kubevirt.CPUModelLabel + vm.CPU.Model}
	}
	for _, f := range vm.CPU.Features {
		if f.Policy == "require" {
			all[kubevirt.CPUFeatureLabel] = append(all[kubevirt.CPUFeatureLabel], kubevirt.CPUFeatureLabel+f.Name)
		}
	}
	all[kubevirt.SupportedMachineTypeLabel] = []string{kubevirt.SupportedMachineTypeLabel + cmp.Or(around.Machine, vm.Machine)}
	all[vmspec.ArchitectureLabel] = []string{vmspec.ArchitectureLabel + vm.Arch()}
	all[kubevirt.HypervLabel] = enlightenments(vm.Board.Hyperv)
	return all
}

// hostModel requires the CPU of the node that a guest leaves, whose labels source are; nil
// for a guest that starts, which gets that of its node.
func hostModel(all map[string][]string, source map[string]string) {
	for key := range source {
		if model, is := strings.CutPrefix(key, kubevirt.HostModelCPULabel); is {
			all[kubevirt.SupportedHostModelMigrationCPU] = []string{kubevirt.SupportedHostModelMigrationCPU + model}
		}
		if feature, is := strings.CutPrefix(key, kubevirt.HostModelRequiredFeaturesLabel); is {
			all[kubevirt.CPUFeatureLabel] = append(all[kubevirt.CPUFeatureLabel], kubevirt.CPUFeatureLabel+feature)
		}
	}
}

// intel is the vendor of the only CPUs that have eVMCS.
const intel = "Intel"

func enlightenments(h *vmspec.Hyperv) []string {
	if h == nil || h.Passthrough {
		return nil
	}
	var all []string
	for name, wanted := range map[string]bool{
		"vpindex": h.VPIndex, "runtime": h.Runtime, "reset": h.Reset, "synic": h.SyNIC, "synictimer": h.SyNICTimer,
		"frequencies": h.Frequencies, "reenlightenment": h.Reenlightenment, "tlbflush": h.TLBFlush, "ipi": h.IPI,
	} {
		if wanted {
			all = append(all, kubevirt.HypervLabel+name)
		}
	}
	if h.EVMCS {
		all = append(all, kubevirt.CPUModelVendorLabel+intel)
	}
	return all
}
