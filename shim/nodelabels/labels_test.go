package nodelabels

import (
	"maps"
	"reflect"
	"testing"

	"github.com/nodevirt/nodevirt/shim/domain"
)

func TestOf(t *testing.T) {
	got := Of(domain.Capabilities{
		Architectures: []string{"amd64", "arm64"},
		Machines:      []string{"microvm", "pc", "pc-q35-7.2", "virt", "x-remote"},
		Models:        []string{"Nehalem"}, KnownModels: []string{"EPYC", "Nehalem"},
		HostModel: "EPYC", Vendor: "AMD", HostFeatures: []string{"umip"},
		Features: []string{"avx2", "not a name"},
		Hyperv:   []string{"relaxed", "stimer", "vendor_id", "vpindex"},
		TSC:      2_300_000_000,

		Encryption: domain.Encryption{SEV: true, SEVES: true, SNP: true, TDX: true},
	})
	want := map[string]string{
		"architecture.node.nodevirt.io/amd64": "true", "architecture.node.nodevirt.io/arm64": "true",
		"machine-type.node.kubevirt.io/virt": "true", "machine-type.node.kubevirt.io/pc": "true", "machine-type.node.kubevirt.io/pc-q35-7.2": "true",
		"cpu-model.node.kubevirt.io/Nehalem":           "true",
		"cpu-model-migration.node.kubevirt.io/EPYC":    "true",
		"cpu-model-migration.node.kubevirt.io/Nehalem": "true",
		"cpu-feature.node.kubevirt.io/avx2":            "true",
		"host-model-cpu.node.kubevirt.io/EPYC":         "true", "cpu-vendor.node.kubevirt.io/AMD": "true",
		"host-model-required-features.node.kubevirt.io/umip": "true",
		"hyperv.node.kubevirt.io/synictimer":                 "true", "hyperv.node.kubevirt.io/vpindex": "true",
		"kubevirt.io/sev": "true", "kubevirt.io/sev-es": "true", "kubevirt.io/sev-snp": "true", "kubevirt.io/tdx": "true",
		"cpu-timer.node.kubevirt.io/tsc-frequency": "2300000000", "cpu-timer.node.kubevirt.io/tsc-scalable": "false",
	}
	if !maps.Equal(got, want) {
		t.Errorf("%v\nwant %v", got, want)
	}
	for key := range got {
		if !owned(key) {
			t.Errorf("%s would stay for ever", key)
		}
	}
	if got := Of(domain.Capabilities{}); len(got) > 0 {
		t.Errorf("of nothing: %v", got)
	}
}

func TestChanges(t *testing.T) {
	has := map[string]string{
		"kubernetes.io/hostname": "a", "cpumanager": "true", "kubevirt.io/schedulable": "false",
		"cpu-model.node.kubevirt.io/EPYC": "true", "cpu-model.node.kubevirt.io/Nehalem": "true", "kubevirt.io/sev": "true",
	}
	wanted := map[string]string{
		"kubevirt.io/schedulable": "true", "cpu-model.node.kubevirt.io/Nehalem": "true", "cpu-feature.node.kubevirt.io/avx": "true",
	}
	want := map[string]any{
		"kubevirt.io/schedulable": "true", "kubevirt.io/sev": nil, "cpu-model.node.kubevirt.io/EPYC": nil, "cpu-feature.node.kubevirt.io/avx": "true",
	}
	if got := changes(has, wanted); !reflect.DeepEqual(got, want) {
		t.Errorf("%v, want %v", got, want)
	}
	if got := changes(wanted, wanted); len(got) > 0 {
		t.Errorf("between equals: %v", got)
	}
}
