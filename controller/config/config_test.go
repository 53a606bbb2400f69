package config_test

import (
	"testing"

	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/validation/field"
	kubevirt "kubevirt.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	"github.com/nodevirt/nodevirt/controller/config"
	"github.com/nodevirt/nodevirt/controller/manifest"
)

// TestDefaults: without an object the flags apply, and KubeVirt's defaults.
func TestDefaults(t *testing.T) {
	c := config.Config{Flags: config.Flags{StateClass: "slow", Gates: manifest.Gates{HostDisks: true}}}
	m := c.Migrations()
	d := kubevirt.DomainSpec{Memory: &kubevirt.Memory{Guest: new(resource.MustParse("1Gi"))}}
	for what, ok := range map[string]bool{
		"gates":      c.Gates() == manifest.Gates{HostDisks: true},
		"class":      c.StateClass() == "slow",
		"policy":     c.ReferencePolicy() == kubevirt.Reference,
		"eviction":   c.EvictionStrategy(new(kubevirt.VirtualMachineInstance)) == kubevirt.EvictionStrategyNone,
		"CPU":        c.MilliPerVCPU() == 100,
		"memory":     new(c.MemoryRequest(&d)).Value() == 1<<30,
		"limits":     c.LimitsCPU() == nil,
		"machine":    c.Machine("amd64") == "",
		"interface":  c.Interface() == kubevirt.BridgeInterface,
		"migrations": *m.ParallelMigrationsPerCluster == 5 && *m.ParallelOutboundMigrationsPerNode == 2 && *m.ProgressTimeout == 150,
		"rollout":    !c.Staged(),
	} {
		if !ok {
			t.Errorf("the default of %s is not KubeVirt's, or a flag does not count", what)
		}
	}
}

// TestObjectWins: a field of the object wins over a flag, and an instance's own field over both.
func TestObjectWins(t *testing.T) {
	given := kubevirt.KubeVirtConfiguration{
		VMStateStorageClass: "fast",
		EvictionStrategy:    new(kubevirt.EvictionStrategyExternal),
		MachineType:         "q35",
		VMRolloutStrategy:   new(kubevirt.VMRolloutStrategyStage),
		DeveloperConfiguration: &kubevirt.DeveloperConfiguration{
			FeatureGates: []string{"Sidecar", "Other"}, DisabledFeatureGates: []string{"HostDisk"}, CPUAllocationRatio: 4, MemoryOvercommit: 200,
		},
		MigrationConfiguration: &kubevirt.MigrationConfiguration{ParallelMigrationsPerCluster: new(uint32(9))},
		ArchitectureConfiguration: &kubevirt.ArchConfiguration{
			Amd64: &kubevirt.ArchSpecificConfiguration{MachineType: "pc-q35-7.2"}, Arm64: &kubevirt.ArchSpecificConfiguration{MachineType: "virt"},
		},
		AutoCPULimitNamespaceLabelSelector: &metav1.LabelSelector{MatchLabels: map[string]string{"limit": "cpu"}},
	}
	c := config.Config{Flags: config.Flags{StateClass: "slow", Gates: manifest.Gates{HostDisks: true, DownwardMetrics: true}}, Given: given}
	own := &kubevirt.VirtualMachineInstance{Spec: kubevirt.VirtualMachineInstanceSpec{EvictionStrategy: new(kubevirt.EvictionStrategyNone)}}
	d := kubevirt.DomainSpec{Memory: &kubevirt.Memory{Guest: new(resource.MustParse("1Gi"))}}
	dedicated := kubevirt.DomainSpec{Memory: d.Memory, CPU: &kubevirt.CPU{DedicatedCPUPlacement: true}}
	for what, ok := range map[string]bool{
		"gates":            c.Gates() == manifest.Gates{DownwardMetrics: true, HookSidecars: true},
		"class":            c.StateClass() == "fast",
		"eviction":         c.EvictionStrategy(new(kubevirt.VirtualMachineInstance)) == kubevirt.EvictionStrategyExternal,
		"own eviction":     c.EvictionStrategy(own) == kubevirt.EvictionStrategyNone,
		"CPU":              c.MilliPerVCPU() == 250,
		"memory":           new(c.MemoryRequest(&d)).Value() == 1<<29,
		"dedicated memory": new(c.MemoryRequest(&dedicated)).Value() == 1<<30,
		"limits":           c.LimitsCPU().Matches(labels.Set{"limit": "cpu"}) && !c.LimitsCPU().Matches(labels.Set{}),
		"machine":          c.Machine("amd64") == "pc-q35-7.2" && c.Machine("arm64") == "virt",
		"migrations":       *c.Migrations().ParallelMigrationsPerCluster == 9 && *c.Migrations().ParallelOutboundMigrationsPerNode == 2,
		"rollout":          c.Staged(),
	} {
		if !ok {
			t.Errorf("%s: the object does not count", what)
		}
	}
	if m := given.MigrationConfiguration; m.ProgressTimeout != nil {
		t.Error("the defaults of migrations were written into the object")
	}
}

// TestSource: the object in the controller's namespace counts, and no other.
func TestSource(t *testing.T) {
	scheme := runtime.NewScheme()
	if err := kubevirt.AddToScheme(scheme); err != nil {
		t.Fatal(err)
	}
	object := func(namespace, class string) *kubevirt.KubeVirt {
		return &kubevirt.KubeVirt{
			ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: config.Name},
			Spec:       kubevirt.KubeVirtSpec{Configuration: kubevirt.KubeVirtConfiguration{VMStateStorageClass: class}},
		}
	}
	reader := fake.NewClientBuilder().WithScheme(scheme).WithObjects(object("ours", "a"), object("others", "b")).Build()
	for namespace, want := range map[string]string{"ours": "a", "": "flag", "empty": "flag"} {
		s := config.Source{Flags: config.Flags{StateClass: "flag"}, Namespace: namespace}.With(reader)
		if c, err := s.Read(t.Context()); err != nil || c.StateClass() != want {
			t.Errorf("namespace %q: class %q, %v; want %q", namespace, c.StateClass(), err, want)
		}
	}
}

// TestCheck refuses what the cluster does not permit.
func TestCheck(t *testing.T) {
	c := config.Config{Given: kubevirt.KubeVirtConfiguration{
		EmulatedMachines:     []string{"pc-q35*"},
		NetworkConfiguration: &kubevirt.NetworkConfiguration{PermitBridgeInterfaceOnPodNetwork: new(false)},
		PermittedHostDevices: &kubevirt.PermittedHostDevices{PciHostDevices: []kubevirt.PciHostDevice{{ResourceName: "example.com/gpu"}}},
	}}
	network := []kubevirt.Network{*kubevirt.DefaultPodNetwork()}
	spec := func(machine string, card kubevirt.InterfaceBindingMethod, device string) *kubevirt.VirtualMachineInstanceSpec {
		s := &kubevirt.VirtualMachineInstanceSpec{Networks: network}
		s.Domain.Machine = &kubevirt.Machine{Type: machine}
		s.Domain.Devices.Interfaces = []kubevirt.Interface{{Name: "default", InterfaceBindingMethod: card}}
		s.Domain.Devices.GPUs = []kubevirt.GPU{{Name: "gpu", DeviceName: device}}
		return s
	}
	masquerade := kubevirt.InterfaceBindingMethod{Masquerade: &kubevirt.InterfaceMasquerade{}}
	if problems := c.Check(field.NewPath("spec"), spec("pc-q35-7.2", masquerade, "example.com/gpu")); len(problems) > 0 {
		t.Errorf("a permitted instance: %v", problems)
	}
	var got []string
	for _, p := range c.Check(field.NewPath("spec"), spec("q35", kubevirt.InterfaceBindingMethod{}, "example.com/other")) {
		got = append(got, p.Field)
	}
	want := []string{"spec.domain.machine.type", "spec.domain.devices.interfaces[0]", "spec.domain.devices.gpus[0].deviceName"}
	for i, w := range want {
		if i >= len(got) || got[i] != w {
			t.Fatalf("refused: %v, want %v", got, want)
		}
	}
	if problems := c.Check(field.NewPath("spec"), new(kubevirt.VirtualMachineInstanceSpec)); len(problems) != 1 {
		t.Errorf("an instance that gets a bridge by default: %v", problems)
	}
}
