package pod_test

import (
	"maps"
	"slices"
	"testing"

	"gotest.tools/v3/assert"
	corev1 "k8s.io/api/core/v1"
	kubevirt "kubevirt.io/api/core/v1"

	"github.com/nodevirt/nodevirt/controller/config"
	"github.com/nodevirt/nodevirt/controller/pod"
)

// TestNodeLabels: a pod requires the labels that nodes write, of the kinds that some node has. The kubelet, which
// kills pods that no longer match, reads none of them.
func TestNodeLabels(t *testing.T) {
	yes := &kubevirt.FeatureState{}
	rich := func(s *kubevirt.VirtualMachineInstanceSpec) {
		s.Domain.CPU = &kubevirt.CPU{Model: "Nehalem", Features: []kubevirt.CPUFeature{
			{Name: "avx2"}, {Name: "aes", Policy: "require"}, {Name: "pcid", Policy: "disable"}, {Name: "ends-badly-"},
		}}
		s.Domain.Machine = &kubevirt.Machine{Type: "pc-q35-7.2"}
		s.Domain.Features = &kubevirt.Features{Hyperv: &kubevirt.FeatureHyperv{
			Relaxed: yes, VPIndex: yes, SyNIC: yes, SyNICTimer: &kubevirt.SyNICTimer{}, VAPIC: yes, EVMCS: yes,
		}}
		s.NodeSelector = map[string]string{"zone": "a"}
	}
	encrypted := func(l kubevirt.LaunchSecurity) func(s *kubevirt.VirtualMachineInstanceSpec) {
		return func(s *kubevirt.VirtualMachineInstanceSpec) {
			s.Domain.LaunchSecurity = &l
			s.Domain.Firmware = &kubevirt.Firmware{Bootloader: &kubevirt.Bootloader{EFI: &kubevirt.EFI{SecureBoot: new(false)}}}
		}
	}
	hostModel := func(s *kubevirt.VirtualMachineInstanceSpec) {
		s.Domain.CPU = &kubevirt.CPU{Model: kubevirt.CPUModeHostModel}
	}
	source := map[string]string{
		"kubernetes.io/hostname": "n", "host-model-cpu.node.kubevirt.io/EPYC": "true", "host-model-required-features.node.kubevirt.io/umip": "true",
	}
	for name, tt := range map[string]struct {
		around pod.Surroundings
		change func(*kubevirt.VirtualMachineInstanceSpec)
		want   []string
	}{
		"no labels": {pod.Surroundings{}, rich, []string{"zone=a"}},
		"all labels": {pod.Surroundings{LabelKinds: pod.LabelKinds()}, rich, []string{
			"architecture.node.nodevirt.io/amd64",
			"cpu-feature.node.kubevirt.io/aes", "cpu-feature.node.kubevirt.io/avx2", "cpu-model.node.kubevirt.io/Nehalem",
			"cpu-vendor.node.kubevirt.io/Intel",
			"hyperv.node.kubevirt.io/synic", "hyperv.node.kubevirt.io/synictimer", "hyperv.node.kubevirt.io/vpindex",
			"kubevirt.io/schedulable", "machine-type.node.kubevirt.io/pc-q35-7.2", "zone=a",
		}},
		"nodes that emulate": {pod.Surroundings{LabelKinds: []string{kubevirt.NodeSchedulable, kubevirt.CPUModelLabel}}, rich, []string{
			"cpu-model.node.kubevirt.io/Nehalem", "kubevirt.io/schedulable", "zone=a",
		}},
		"a plain instance": {pod.Surroundings{LabelKinds: pod.LabelKinds()}, func(*kubevirt.VirtualMachineInstanceSpec) {}, []string{
			"architecture.node.nodevirt.io/amd64", "kubevirt.io/schedulable", "machine-type.node.kubevirt.io/q35",
		}},
		"another architecture": {pod.Surroundings{LabelKinds: pod.LabelKinds()}, func(s *kubevirt.VirtualMachineInstanceSpec) { s.Architecture = "arm64" }, []string{
			"architecture.node.nodevirt.io/arm64", "kubevirt.io/schedulable", "machine-type.node.kubevirt.io/virt",
		}},
		"host-model": {pod.Surroundings{LabelKinds: pod.LabelKinds()}, hostModel, []string{
			"architecture.node.nodevirt.io/amd64", "kubevirt.io/schedulable", "machine-type.node.kubevirt.io/q35",
		}},
		"host-model that migrates": {pod.Surroundings{LabelKinds: pod.LabelKinds(), Source: source}, hostModel, []string{
			"architecture.node.nodevirt.io/amd64",
			"cpu-feature.node.kubevirt.io/umip", "cpu-model-migration.node.kubevirt.io/EPYC",
			"kubevirt.io/schedulable", "machine-type.node.kubevirt.io/q35",
		}},
		"q35 that migrates": {pod.Surroundings{LabelKinds: pod.LabelKinds(), Machine: "pc-q35-7.2"}, func(*kubevirt.VirtualMachineInstanceSpec) {}, []string{
			"architecture.node.nodevirt.io/amd64", "kubevirt.io/schedulable", "machine-type.node.kubevirt.io/pc-q35-7.2",
		}},
		"SEV": {pod.Surroundings{}, encrypted(kubevirt.LaunchSecurity{SEV: new(kubevirt.SEV)}), []string{"kubevirt.io/sev"}},
		"SEV-ES": {pod.Surroundings{}, encrypted(kubevirt.LaunchSecurity{SEV: &kubevirt.SEV{Policy: &kubevirt.SEVPolicy{EncryptedState: new(true)}}}),
			[]string{"kubevirt.io/sev", "kubevirt.io/sev-es"}},
		"SEV-SNP": {pod.Surroundings{}, encrypted(kubevirt.LaunchSecurity{SNP: new(kubevirt.SEVSNP)}), []string{"kubevirt.io/sev", "kubevirt.io/sev-snp"}},
		"TDX":     {pod.Surroundings{}, encrypted(kubevirt.LaunchSecurity{TDX: new(kubevirt.TDX)}), []string{"kubevirt.io/tdx"}},
		"an instance that says otherwise": {pod.Surroundings{LabelKinds: pod.LabelKinds()}, func(s *kubevirt.VirtualMachineInstanceSpec) {
			s.NodeSelector = map[string]string{"kubevirt.io/schedulable": "false"}
		}, []string{"architecture.node.nodevirt.io/amd64", "kubevirt.io/schedulable=false", "machine-type.node.kubevirt.io/q35"}},
		"constraints of its own": {pod.Surroundings{LabelKinds: []string{kubevirt.NodeSchedulable, kubevirt.SupportedMachineTypeLabel}}, func(s *kubevirt.VirtualMachineInstanceSpec) {
			s.TopologySpreadConstraints = []corev1.TopologySpreadConstraint{
				{MaxSkew: 1, TopologyKey: "machine-type.node.kubevirt.io/q35", WhenUnsatisfiable: corev1.DoNotSchedule},
				{MaxSkew: 1, TopologyKey: "kubevirt.io/schedulable", WhenUnsatisfiable: corev1.ScheduleAnyway},
			}
		}, []string{"kubevirt.io/schedulable", "kubevirt.io/schedulable", "machine-type.node.kubevirt.io/q35"}},
	} {
		vmi := read(t, "least")
		tt.change(&vmi.Spec)
		p, err := pod.New(vmi, nil, nil, pod.Options{RuntimeClass: "vm", Surroundings: tt.around})
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		var got []string
		for _, key := range slices.Sorted(maps.Keys(p.Spec.NodeSelector)) {
			got = append(got, key+"="+p.Spec.NodeSelector[key])
		}
		for _, c := range p.Spec.TopologySpreadConstraints {
			if c.LabelSelector != nil {
				t.Errorf("%s: the constraint of %s counts pods", name, c.TopologyKey)
			}
			got = append(got, c.TopologyKey)
		}
		slices.Sort(got)
		if !slices.Equal(got, tt.want) {
			t.Errorf("%s: %q, want %q", name, got, tt.want)
		}
	}
}

// TestClustersNodes: an instance cannot choose other nodes than those that run VMs.
func TestClustersNodes(t *testing.T) {
	around := pod.Surroundings{Config: config.Config{Given: kubevirt.KubeVirtConfiguration{
		DeveloperConfiguration: &kubevirt.DeveloperConfiguration{NodeSelectors: map[string]string{"vms": "yes"}},
	}}}
	vmi := read(t, "least")
	vmi.Spec.NodeSelector = map[string]string{"vms": "no", "zone": "a"}
	p, err := pod.New(vmi, nil, nil, pod.Options{RuntimeClass: "vm", StubImage: "registry.example.com/stub:1", Surroundings: around})
	if err != nil {
		t.Fatal(err)
	}
	if got := p.Spec.NodeSelector; !maps.Equal(got, map[string]string{"vms": "yes", "zone": "a"}) {
		t.Errorf("node selector %v", got)
	}
}

// TestForbiddenFeatures: a node with a CPU feature that an instance forbids does not get it, whatever else the instance
// says of nodes.
func TestForbiddenFeatures(t *testing.T) {
	zone := corev1.NodeSelectorRequirement{Key: "zone", Operator: corev1.NodeSelectorOpIn, Values: []string{"a"}}
	without := corev1.NodeSelectorRequirement{Key: "cpu-feature.node.kubevirt.io/vmx", Operator: corev1.NodeSelectorOpDoesNotExist}
	for _, tt := range map[string]struct {
		said []corev1.NodeSelectorTerm
		want []corev1.NodeSelectorTerm
	}{
		"no affinity": {nil, []corev1.NodeSelectorTerm{{MatchExpressions: []corev1.NodeSelectorRequirement{without}}}},
		"two ways": {
			[]corev1.NodeSelectorTerm{{MatchExpressions: []corev1.NodeSelectorRequirement{zone}}, {MatchFields: []corev1.NodeSelectorRequirement{zone}}},
			[]corev1.NodeSelectorTerm{
				{MatchExpressions: []corev1.NodeSelectorRequirement{zone, without}},
				{MatchFields: []corev1.NodeSelectorRequirement{zone}, MatchExpressions: []corev1.NodeSelectorRequirement{without}},
			},
		},
	} {
		vmi := read(t, "least")
		vmi.Spec.Domain.CPU = &kubevirt.CPU{Features: []kubevirt.CPUFeature{{Name: "vmx", Policy: "forbid"}, {Name: "avx", Policy: "optional"}}}
		if tt.said != nil {
			vmi.Spec.Affinity = &corev1.Affinity{NodeAffinity: &corev1.NodeAffinity{
				RequiredDuringSchedulingIgnoredDuringExecution: &corev1.NodeSelector{NodeSelectorTerms: tt.said}}}
		}
		before := vmi.DeepCopy()
		p, err := pod.New(vmi, nil, nil, pod.Options{RuntimeClass: "vm"})
		assert.NilError(t, err)
		got := p.Spec.Affinity.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution.NodeSelectorTerms
		assert.DeepEqual(t, got, tt.want)
		assert.DeepEqual(t, vmi, before)
	}
}

// TestObsoleteCPUs: no guest starts with a CPU model that is obsolete, also if it is its node's; one that moves keeps it.
func TestObsoleteCPUs(t *testing.T) {
	obsolete := config.Config{Given: kubevirt.KubeVirtConfiguration{ObsoleteCPUModels: map[string]bool{"Penryn": true, "Conroe": true, "Haswell": false}}}
	for name, tt := range map[string]struct {
		cpu    *kubevirt.CPU
		source map[string]string
		want   []string
	}{
		"none":         {},
		"another":      {cpu: &kubevirt.CPU{Model: "EPYC"}},
		"not any more": {cpu: &kubevirt.CPU{Model: "Haswell"}},
		"obsolete":     {cpu: &kubevirt.CPU{Model: "Penryn"}, want: []string{"cpu-model.node.kubevirt.io/Penryn"}},
		"its node's":   {cpu: &kubevirt.CPU{Model: "host-model"}, want: []string{"host-model-cpu.node.kubevirt.io/Conroe", "host-model-cpu.node.kubevirt.io/Penryn"}},
		"moving":       {cpu: &kubevirt.CPU{Model: "host-model"}, source: map[string]string{"host-model-cpu.node.kubevirt.io/Penryn": "true"}},
	} {
		vmi := read(t, "least")
		vmi.Spec.Domain.CPU = tt.cpu
		p, err := pod.New(vmi, nil, nil, pod.Options{RuntimeClass: "vm", Surroundings: pod.Surroundings{Config: obsolete, Source: tt.source}})
		assert.NilError(t, err)
		var got []string
		if a := p.Spec.Affinity; a != nil {
			for _, e := range a.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution.NodeSelectorTerms[0].MatchExpressions {
				assert.Equal(t, e.Operator, corev1.NodeSelectorOpDoesNotExist)
				got = append(got, e.Key)
			}
		}
		if !slices.Equal(got, tt.want) {
			t.Errorf("%s: %q, want %q", name, got, tt.want)
		}
	}
}
